"""The recipes that cannot run where Rondo is tested say what is true of this checkout.

Spack's recipe is loaded with a stand-in for its package language. Versions, build options and names
of libraries in it, in debian/ and in the container file are compared with Meson's files.
"""

import pathlib
import re
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What Spack's package language has and the recipe uses. A recipe that uses more does not load.
DIRECTIVES = ("depends_on", "extends", "license", "requires", "variant", "version")


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


def project_version():
    return re.search(r"^  version : '([^']+)'", text("meson.build"), re.MULTILINE).group(1)


def build_options():
    return set(re.findall(r"^option\('(\w+)'", text("meson_options.txt"), re.MULTILINE))


class Spec:
    """What `spack install rondo WORDS` has chosen."""

    def __init__(self, *words):
        self.words = words

    def satisfies(self, word):
        return word in self.words


def load_spack_recipe():
    """The recipe's class, and the calls of each directive in it as (arguments, named arguments)."""
    calls = {name: [] for name in DIRECTIVES}
    language = types.ModuleType("spack.package")
    language.MesonPackage = type("MesonPackage", (), {})
    language.any_combination_of = lambda *values: values
    language.python_platlib = language.python_purelib = "lib/python"
    for name in DIRECTIVES:
        setattr(language, name, lambda *a, _calls=calls[name], **named: _calls.append((a, named)))
    sys.modules["spack"] = types.ModuleType("spack")
    sys.modules["spack.package"] = language
    scope = {}
    source = text("packaging/spack/packages/rondo/package.py")
    exec(compile(source, "package.py", "exec"), scope)  # pylint: disable=exec-used
    return scope["Rondo"], calls


class SpackRecipe(unittest.TestCase):
    def setUp(self):
        self.recipe, self.calls = load_spack_recipe()

    def arguments_of(self, *words):
        package = self.recipe()
        package.spec = Spec(*words)
        options = [word for word in package.meson_args() if word.startswith("-D")]
        return dict(word[2:].split("=", 1) for word in options)

    def test_has_the_version_of_this_checkout(self):
        self.assertIn(project_version(), [a[0] for a, _ in self.calls["version"]])

    def test_decides_every_build_option_and_no_other(self):
        chosen = self.arguments_of()
        self.assertEqual({name for name in chosen if "." not in name}, build_options())
        self.assertEqual(set(chosen.values()), {"disabled"})

    def test_turns_each_variant_into_its_build_option(self):
        for word, option in (
            ("fabrics=ucx", "ucx"),
            ("fabrics=ofi", "ofi"),
            ("+pmix", "pmix"),
            ("+torch", "torch"),
        ):
            chosen = self.arguments_of(word)
            enabled = [name for name, value in chosen.items() if value == "enabled"]
            self.assertEqual(enabled, [option])

    def test_conditions_name_variants_that_exist(self):
        variants = {a[0] for a, _ in self.calls["variant"]}
        for name in ("depends_on", "extends", "requires"):
            for _, named in self.calls[name]:
                if "when" in named:
                    self.assertIn(re.search(r"\w+", named["when"]).group(), variants)


class DebianPackages(unittest.TestCase):
    def test_have_the_version_of_this_checkout(self):
        version = re.match(r"rondo \(([^-]+)-\d+\)", text("debian/changelog")).group(1)
        self.assertEqual(version, project_version())

    def test_are_named_after_the_libraries(self):
        major, minor = project_version().split(".")[:2]
        named = set(re.findall(r"^Package: (librondo\S*\d)$", text("debian/control"), re.MULTILINE))
        modules = ("transport", "tensor", "sync", "train")
        expected = {f"librondo-{module}{major}.{minor}" for module in modules}
        self.assertEqual(named, expected | {f"librondo{major}"})

    def test_decide_every_build_option(self):
        options = set(re.findall(r"-D(\w+)=", text("debian/rules")))
        self.assertEqual(options, build_options())


class ContainerFile(unittest.TestCase):
    def test_calls_what_the_script_of_the_new_system_has(self):
        called = re.findall(r"packaging/on-debian (\w+)", text("packaging/Containerfile"))
        cases = re.findall(r"^  (\w+)\) ", text("packaging/on-debian"), re.MULTILINE)
        self.assertTrue(called)
        self.assertLessEqual(set(called), set(cases))

    def test_copies_from_stages_that_exist(self):
        content = text("packaging/Containerfile")
        stages = re.findall(r"^FROM \S+ AS (\w+)", content, re.MULTILINE)
        self.assertLessEqual(set(re.findall(r"from=(\w+)", content)), set(stages))


if __name__ == "__main__":
    unittest.main(verbosity=2)
