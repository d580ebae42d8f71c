//! The top modules of each crate form layers: a module uses what stands above it in the table below, and
//! nothing beside or beneath it. So what a module may touch is known from its line, and there is no cycle. The arrows are
//! read from the paths in the sources, tests left out: those may look at whatever they test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// What a crate is made of, the foundations first. Modules of one line do not know each other.
type Layers = &'static [&'static [&'static str]];

const CRATES: &[(&str, Layers)] = &[
    (
        "core",
        &[
            &[
                "allowance",
                "ids",
                "places",
                "prng",
                "protobuf",
                "record",
                "stats",
                "time",
            ],
            &[
                "moves",
                "request",
                "hedge_budget",
                "retry_budget",
                "source_limits",
                "units",
            ],
            &["classes", "load"],
            &["culprits", "policy"],
            &["admission", "throttle"],
            &["topology"],
            &["director", "testing"],
            &["picker", "steer"],
        ],
    ),
    (
        "culprits",
        &[
            &[
                "delay_experiment",
                "files",
                "input",
                "names",
                "order",
                "page",
                "table",
                "time",
            ],
            &["access", "resource"],
            &["correlate", "evidence"],
            &["picture", "replay", "requests"],
            &["live", "offline", "report"],
            &["fuzzing", "search"],
        ],
    ),
    (
        "discover",
        &[
            &["backoff", "name", "source"],
            &["http"],
            &["consul", "dns", "file", "kubernetes"],
            &["sources"],
            &["watch"],
        ],
    ),
    ("emulator", &[&["antagonist", "load", "server"], &["nodes"]]),
    (
        "lab",
        &[
            &[
                "antagonist",
                "auction",
                "awake",
                "gather",
                "progress",
                "results",
                "server",
            ],
            &["cluster", "monitor", "rdma_points"],
            &["front", "load"],
            &["experiments"],
            &["output"],
        ],
    ),
    (
        "node",
        &[
            &[
                "config", "counter", "demand", "file", "findings", "pace", "parse", "report",
            ],
            &["connections", "sampler"],
            &["kernel", "moves"],
            &["privilege", "rdma"],
            &["agent"],
        ],
    ),
    (
        "proxy",
        &[
            &["sockets", "stream", "tls", "wire"],
            &["config"],
            &["record"],
            &["base", "head", "refusal"],
            &["route"],
            &["gate"],
            &["connection"],
            &["upstream"],
            &["worker"],
            &["request"],
            &["forward", "response"],
            &["fuzzing", "listen"],
            &["proxy"],
        ],
    ),
    (
        "remote",
        &[
            &[
                "allocator",
                "child",
                "clock",
                "inherited",
                "interface",
                "privilege",
                "region",
            ],
            &["memory", "realtime"],
            &["shm", "udp"],
            &["rdma"],
            &["kernel", "reader"],
        ],
    ),
    (
        "sim",
        &[
            &[
                "checks",
                "chooser",
                "counters",
                "due",
                "file_table",
                "kernel",
                "model",
                "own_log",
                "queue",
                "requests",
                "words",
            ],
            &["moves"],
            &["arrivals", "processor", "report"],
            &["node_model"],
            &["node"],
            &["fault"],
            &["scenario"],
            &["lab", "oracle", "read_class"],
            &["reads"],
            &["reader"],
            &["front_end"],
            &["elephants", "shop", "world"],
            &["file"],
            &["matrix"],
        ],
    ),
    (
        "tidegate",
        &[
            &["journal"],
            &[
                "exposition",
                "models",
                "open_files",
                "replace",
                "rungs",
                "seats",
                "secret_file",
            ],
            &["events"],
            &["output"],
            &["history", "key_file", "overrides_file", "text", "token"],
            &["config", "peer_auth"],
            &["failure", "otlp", "reads", "state", "webhook"],
            &["client", "driver", "privilege", "resources", "signals"],
            &["acme", "check", "learned"],
            &["upgrade"],
            &["agent", "culprits", "reload", "simulate", "steer", "top"],
            &["discovery", "moves", "probe"],
            &["admin"],
            &["run"],
            &["demo", "doctor"],
            &["cli", "fuzzing", "testing"],
        ],
    ),
];

/// An arrow between two top modules, and a file that has it.
type Arrows = BTreeMap<(String, String), String>;

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("a crate lies in a folder").into()
}

/// The Rust files of a folder and of those in it, in order.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The module that a file is, from the root of its crate: `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn module_of(file: &Path) -> Vec<String> {
    let mut names: Vec<_> = (file.with_extension("").iter())
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let is_own_folder = names
        .last()
        .is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str()));
    if is_own_folder {
        names.pop();
    }
    names
}

fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        let tokens = list.tokens.to_string();
        list.path.is_ident("cfg")
            && (tokens == "test"
                || tokens.starts_with("any (test")
                || tokens.starts_with("all (test"))
    })
}

/// The names of a file that begin at the root of its crate: the first of each, after `crate::`.
struct Names {
    /// The module that is being read.
    module: Vec<String>,
    found: BTreeSet<String>,
}

impl Names {
    /// A path that stands in this module.
    fn on_path(&mut self, names: &[String]) {
        let mut names = names.iter().map(String::as_str);
        let mut from = match names.next() {
            Some("crate") => Vec::new(),
            Some("self") => self.module.clone(),
            Some("super") => self.parent(&self.module),
            _ => return,
        };
        for name in names {
            match name {
                "super" => from = self.parent(&from),
                name => from.push(name.to_owned()),
            }
        }
        self.found.extend(from.into_iter().next());
    }

    fn parent(&self, module: &[String]) -> Vec<String> {
        module
            .split_last()
            .map_or(Vec::new(), |(_, parent)| parent.to_vec())
    }

    /// Everything that a `use` names, whole.
    fn on_tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.on_tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                before.push(ident.to_string());
                self.on_path(before);
                before.pop();
            }
            syn::UseTree::Glob(_) => self.on_path(before),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|it| self.on_tree(before, it))
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "syn's enum grows; other items have no tests in them"
    )]
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Const(it) => &it.attrs,
            syn::Item::Enum(it) => &it.attrs,
            syn::Item::Fn(it) => &it.attrs,
            syn::Item::Impl(it) => &it.attrs,
            syn::Item::Mod(it) => &it.attrs,
            syn::Item::Struct(it) => &it.attrs,
            syn::Item::Use(it) => &it.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_of_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_of_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.on_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        self.on_path(&names);
        visit::visit_path(self, path);
    }
}

/// What the root of a crate gives away under names of its own, and the modules that they stand in.
fn given_away(text: &str) -> BTreeMap<String, String> {
    fn collect(first: Option<&str>, tree: &syn::UseTree, into: &mut BTreeMap<String, String>) {
        let mut note = |name: &syn::Ident| {
            if let Some(first) = first {
                into.insert(name.to_string(), first.to_owned());
            }
        };
        match tree {
            syn::UseTree::Path(path) => {
                let name = path.ident.to_string();
                let own = ["self", "crate"].contains(&name.as_str());
                collect(first.or((!own).then_some(&name)), &path.tree, into);
            }
            syn::UseTree::Name(it) => note(&it.ident),
            syn::UseTree::Rename(it) => note(&it.rename),
            syn::UseTree::Glob(_) => {}
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|it| collect(first, it, into))
            }
        }
    }
    let file = syn::parse_file(text).expect("it compiles");
    let mut names = BTreeMap::new();
    for item in &file.items {
        if let syn::Item::Use(item) = item {
            collect(None, &item.tree, &mut names);
        }
    }
    names
}

/// The top modules of a crate, and which uses which.
fn read(name: &str) -> (BTreeSet<String>, Arrows) {
    let sources = root().join("crates").join(name).join("src");
    let mut modules = BTreeSet::new();
    let mut used = Vec::new();
    let mut aliases = BTreeMap::new();
    for path in files_in(&sources) {
        let file = path.strip_prefix(&sources).expect("it lies there");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let module = module_of(file);
        let Some(top) = module.first().cloned() else {
            aliases.extend(given_away(&text));
            continue;
        };
        modules.insert(top.clone());
        if module
            .iter()
            .any(|name| name == "testing" || name.ends_with("tests"))
            && module.len() > 1
        {
            continue;
        }
        let parsed =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut names = Names {
            module,
            found: BTreeSet::new(),
        };
        names.visit_file(&parsed);
        used.push((top, file.display().to_string(), names.found));
    }
    let mut arrows = Arrows::new();
    for (from, file, names) in used {
        for name in names {
            let to = aliases.get(&name).unwrap_or(&name).clone();
            if to != from && modules.contains(&to) {
                arrows.entry((from.clone(), to)).or_insert(file.clone());
            }
        }
    }
    (modules, arrows)
}

/// What is wrong with the arrows of a crate that is to have these layers.
fn wrong(name: &str, layers: Layers, modules: &BTreeSet<String>, arrows: &Arrows) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut places = BTreeMap::new();
    for (place, layer) in layers.iter().enumerate() {
        for module in *layer {
            if places.insert(*module, place).is_some() {
                wrong.push(format!("{name}: {module} stands in the table twice"));
            }
            if !modules.contains(*module) {
                wrong.push(format!(
                    "{name}: {module} stands in the table, and is not there"
                ));
            }
        }
    }
    for module in modules {
        if !places.contains_key(module.as_str()) {
            wrong.push(format!(
                "{name}: say in xtask/tests/layers.rs in which layer {module} stands"
            ));
        }
    }
    for ((from, to), file) in arrows {
        if let (Some(place), Some(under)) = (places.get(from.as_str()), places.get(to.as_str()))
            && under >= place
        {
            wrong.push(format!("crates/{name}/src/{file}: {from} uses {to}, which stands in no layer before its own"));
        }
    }
    wrong
}

#[test]
fn modules_use_only_layers_before_their_own() {
    let mut all = Vec::new();
    for (name, layers) in CRATES {
        let (modules, arrows) = read(name);
        all.extend(wrong(name, layers, &modules, &arrows));
    }
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn an_arrow_back_a_module_too_many_and_one_too_few_are_wrong() {
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|it| (*it).to_owned())
            .collect::<BTreeSet<_>>()
    };
    let arrow = |from: &str, to: &str| ((from.to_owned(), to.to_owned()), "a.rs".to_owned());
    let layers: Layers = &[&["a", "b"], &["c"]];
    let modules = names(&["a", "b", "c"]);
    let found = |arrows: &[((String, String), String)]| {
        wrong("it", layers, &modules, &arrows.iter().cloned().collect()).len()
    };
    assert_eq!(found(&[arrow("c", "a"), arrow("c", "b")]), 0);
    assert_eq!(found(&[arrow("a", "c")]), 1);
    assert_eq!(found(&[arrow("a", "b")]), 1);
    assert_eq!(
        wrong("it", layers, &names(&["a", "b"]), &Arrows::new()).len(),
        1
    );
    assert_eq!(
        wrong("it", layers, &names(&["a", "b", "c", "d"]), &Arrows::new()).len(),
        1
    );
}

#[test]
fn arrows_are_read_from_every_way_to_write_a_path() {
    let text = "
        use crate::one::{self, Thing};
        use super::super::two::X;
        pub(crate) use crate::{three::Y, four};
        fn f() -> crate::five::Z { self::g(); super::super::six::h() }
        #[cfg(test)]
        mod tests { use crate::seven::T; }
    ";
    let mut names = Names {
        module: vec!["own".into(), "part".into()],
        found: BTreeSet::new(),
    };
    names.visit_file(&syn::parse_file(text).expect("it is Rust"));
    let found: Vec<_> = names.found.iter().map(String::as_str).collect();
    assert_eq!(found, ["five", "four", "one", "own", "six", "three", "two"]);
    let given = given_away("pub use one::{A, b::B as C}; use self::two::D; mod one;");
    let given: Vec<_> = given
        .iter()
        .map(|(name, module)| (name.as_str(), module.as_str()))
        .collect();
    assert_eq!(given, [("A", "one"), ("C", "one"), ("D", "two")]);
}
