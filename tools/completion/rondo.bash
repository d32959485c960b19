# Completes command lines of rondo in bash: the program itself says what may come next.

_rondo() {
  local word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]/#\~/$HOME} offer found
  COMPREPLY=()
  # bash takes the "=" of --option=value for a word of its own.
  [[ $word == = ]] && word=
  while IFS=$'\t' read -r offer _; do
    case $offer in
      '(files)')
        compopt -o filenames 2>/dev/null
        mapfile -t found < <(compgen -f -- "$word")
        COMPREPLY+=("${found[@]}")
        ;;
      '(folders)')
        compopt -o filenames 2>/dev/null
        mapfile -t found < <(compgen -d -- "$word")
        COMPREPLY+=("${found[@]}")
        ;;
      *) [[ $offer == "$word"* ]] && COMPREPLY+=("$offer") ;;
    esac
  done < <("$program" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}

complete -F _rondo rondo
