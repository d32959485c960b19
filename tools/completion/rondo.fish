# Completes command lines of rondo in fish: the program itself says what may come next.

function __rondo_offers
  set -l words (commandline -opc)
  set -l word (commandline -ct)
  for offer in (command $words[1] complete -- $words[2..] "$word" 2>/dev/null)
    switch $offer
      case '(files)'
        __fish_complete_path $word
      case '(folders)'
        __fish_complete_directories $word
      case '*'
        echo $offer
    end
  end
end

complete -c rondo -f -a '(__rondo_offers)'
