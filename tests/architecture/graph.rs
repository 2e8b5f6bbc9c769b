//! The arrows between the modules of a crate, and their circles.

use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{Paths, Use, paths};
use crate::source::Source;

/// The longest chain of re-exports that is followed.
const CHAIN: usize = 16;

/// The modules of a crate, and which imports which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    arrows: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// The graph of these modules.
    pub fn of(sources: &[Source]) -> Self {
        let read: BTreeMap<&str, Paths> =
            sources.iter().map(|source| (source.module.as_str(), paths(&source.text))).collect();
        let tests: BTreeSet<String> = read
            .iter()
            .flat_map(|(module, paths)| paths.tests.iter().map(|name| child(module, name)))
            .collect();
        let is_test =
            |module: &str| tests.iter().any(|test| module == test || is_below(module, test));
        let modules: BTreeMap<&str, Paths> =
            read.into_iter().filter(|(module, _)| !is_test(module)).collect();
        let names = Names { modules: &modules };
        let arrows = modules.keys().map(|module| ((*module).to_owned(), names.imports(module)));
        Self { arrows: arrows.collect() }
    }

    /// All modules.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.arrows.keys().map(String::as_str)
    }

    /// All arrows, from the module that imports to the one that is imported.
    pub fn arrows(&self) -> impl Iterator<Item = (&str, &str)> {
        let from = self.arrows.iter();
        from.flat_map(|(from, to)| to.iter().map(|to| (from.as_str(), to.as_str())))
    }

    /// The strongly connected components of two modules or more, the largest first.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.modules().map(|module| (module, self.reach(module))).collect();
        let mutual = |a: &str, b: &str| {
            let reaches = |a: &str, b: &str| reach.get(a).is_some_and(|reach| reach.contains(b));
            reaches(a, b) && reaches(b, a)
        };
        let circle = |module: &str| -> Vec<&str> {
            self.modules().filter(|other| *other == module || mutual(module, other)).collect()
        };
        let all: BTreeSet<Vec<&str>> = self.modules().map(circle).collect();
        let mut circles: Vec<_> = all.into_iter().filter(|circle| circle.len() > 1).collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    /// The modules that one imports, directly or by others.
    fn reach(&self, module: &str) -> BTreeSet<&str> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
        while let Some(next) = open.pop() {
            for to in self.arrows.get(next).into_iter().flatten() {
                if reached.insert(to.as_str()) {
                    open.push(to);
                }
            }
        }
        reached
    }
}

/// The names that modules define and import.
struct Names<'a> {
    modules: &'a BTreeMap<&'a str, Paths>,
}

impl Names<'_> {
    /// The other modules that one imports.
    fn imports(&self, module: &str) -> BTreeSet<String> {
        let Some(paths) = self.modules.get(module) else { return BTreeSet::new() };
        let uses = paths.uses.iter().filter_map(|it| {
            let target = self.target(module, &it.path)?;
            // A facade re-exports its children and does not depend on them.
            (!it.exported || !is_below(&target, module)).then_some(target)
        });
        let inline = paths.inline.iter().filter_map(|path| self.target(module, path));
        uses.chain(inline).filter(|target| target != module).collect()
    }

    /// The module that defines what `path` names in `module`; none outside of the crate.
    fn target(&self, module: &str, path: &[String]) -> Option<String> {
        let mut path = self.absolute(module, path)?;
        for _ in 0..CHAIN {
            let (module, rest) = self.split(&path);
            let Some(first) = rest.first() else { return Some(module) };
            let Some(alias) = self.alias(&module, first) else { return Some(module) };
            let Some(mut next) = self.absolute_of_use(&module, &alias.path) else {
                return Some(module);
            };
            next.extend(rest.iter().skip(1).cloned());
            path = next;
        }
        None
    }

    /// The `use` by which `module` knows `name`.
    fn alias(&self, module: &str, name: &str) -> Option<&Use> {
        let paths = self.modules.get(module)?;
        paths.uses.iter().find(|it| it.name.as_deref() == Some(name))
    }

    /// A path in `module` from the root of the crate on; none if it is of another crate.
    fn absolute(&self, module: &str, path: &[String]) -> Option<Vec<String>> {
        let first = path.first()?;
        if let Some(alias) = self.alias(module, first).filter(|alias| alias.path != path) {
            let mut absolute = self.absolute_of_use(module, &alias.path)?;
            absolute.extend(path.iter().skip(1).cloned());
            return Some(absolute);
        }
        self.absolute_of_use(module, path)
    }

    /// As [`Names::absolute`], for the path of a `use` itself.
    fn absolute_of_use(&self, module: &str, path: &[String]) -> Option<Vec<String>> {
        let mut base: Vec<String> =
            module.split("::").filter(|segment| !segment.is_empty()).map(str::to_owned).collect();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = rest.get(1..)?;
            }
            "self" => rest = rest.get(1..)?,
            "super" => {
                while let Some((_, after)) = rest.split_first().filter(|(it, _)| *it == "super") {
                    base.pop()?;
                    rest = after;
                }
            }
            first if self.modules.contains_key(child(module, first).as_str()) => {}
            _ => return None,
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// The longest module that begins `path`, and the rest of it.
    fn split(&self, path: &[String]) -> (String, Vec<String>) {
        for length in (0..=path.len()).rev() {
            let (module, rest) = path.split_at(length);
            let module = module.join("::");
            if self.modules.contains_key(module.as_str()) {
                return (module, rest.to_vec());
            }
        }
        (String::new(), path.to_vec())
    }
}

fn child(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn is_below(module: &str, parent: &str) -> bool {
    parent.is_empty() || module.strip_prefix(parent).is_some_and(|rest| rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(sources: &[(&str, &str)]) -> Graph {
        let sources: Vec<_> =
            sources.iter().map(|(module, text)| Source::new(module, text)).collect();
        Graph::of(&sources)
    }

    fn arrows(sources: &[(&str, &str)]) -> Vec<String> {
        graph(sources).arrows().map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    #[test]
    fn an_import_is_an_arrow_to_the_module_that_defines_the_name() {
        let facade = ("a", "pub use self::b::B;\npub use c::C;\nmod b;\nmod c;");
        for (text, expected) in [
            ("use super::a::B;", &["d -> a::b"][..]),
            ("use crate::a::{B, C as D};", &["d -> a::b", "d -> a::c"]),
            ("use super::a::Other;", &["d -> a"]),
            ("use super::a::{self};\nfn f() { a::C::new() }", &["d -> a", "d -> a::c"]),
            ("fn f() { crate::a::c::C }", &["d -> a::c"]),
            ("use std::fmt; use kube::a::B;", &[]),
        ] {
            let sources = [("", ""), facade, ("a::b", ""), ("a::c", ""), ("d", text)];
            assert_eq!(arrows(&sources), expected, "{text}");
        }
    }

    #[test]
    fn a_module_that_uses_its_children_imports_them() {
        let sources = [("a", "use self::b::B;\nfn f() { c::g() }"), ("a::b", ""), ("a::c", "")];
        assert_eq!(arrows(&sources), ["a -> a::b", "a -> a::c"]);
    }

    #[test]
    fn modules_of_tests_do_not_count() {
        let sources = [
            ("a", "#[cfg(test)]\nmod tests;"),
            ("a::tests", "use crate::b::B;"),
            ("a::tests::more", "use crate::b::B;"),
            ("b", ""),
        ];
        assert_eq!(graph(&sources).modules().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn circles_are_found_and_chains_are_none() {
        let chain = [("a", "use super::b::B;"), ("b", "use super::c::C;"), ("c", "")];
        assert_eq!(graph(&chain).circles(), Vec::<Vec<&str>>::new());
        let [a, b, _] = chain;
        let circle = [
            a,
            b,
            ("c", "fn f() { super::a::A }"),
            ("d", "use super::e::E;"),
            ("e", "use super::d::D;"),
        ];
        assert_eq!(graph(&circle).circles(), [vec!["a", "b", "c"], vec!["d", "e"]]);
    }
}
