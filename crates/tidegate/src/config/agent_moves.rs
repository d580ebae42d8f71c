//! What an agent does when its node moves to another site: the tables, and what is wrong with them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::moves::words::SITES_MAX;
use tidegate_node::{
    COMMANDS_MAX, HOOK_TIMEOUT, HOOK_TIMEOUT_MAX, HOOK_TIMEOUT_MIN, HookPart, HookTemplate,
    MovesConfig, SiteHook,
};

use super::problem::{Problem, Problems};
use super::setting::{At, table};

const PORT_MAX: u32 = u16::MAX as u32;

table! {
    /// The agent's part when its node moves to another site ([moves.md](moves.md#hooks-on-the-node)). It is in this file alone: a
    /// front-end names a site, and the agent runs what is here for it.
    pub(crate) struct AgentMovesFile {
        /// The port of the node's servers: its connections are counted while the node drains.
        port: u32, in 1..=PORT_MAX;
        /// A folder of the agent's own, which keeps the site that the servers are set up for and which hooks have run, over a
        /// restart. Not set: after a restart a hook may run a second time. Relative to this file.
        state: Option<PathBuf> = None;
        /// All sites that have `nodes` at the front-ends, with what is done for each. Empty: connections are counted and nothing
        /// is run.
        site: Vec<At<SiteHookFile>> = Vec::new();
    }
}

table! {
    /// What is done when the node is to serve this site. Files and programs must belong to root or to the agent's user, and
    /// others must not be able to write to them or to the folders that they are in.
    pub(crate) struct SiteHookFile {
        /// The site's name, as front-ends have it.
        name: String;
        /// The file that `target` is made from. `{site}`, `{from}` (the site that the node leaves, or nothing), `{node}` and
        /// `{generation}` in it are replaced, but not behind `$` or `%`. Relative to this file.
        template: Option<PathBuf> = None;
        /// The file that is made, by its absolute path.
        target: Option<PathBuf> = None;
        /// What is run then, in turn, until one ends with another exit code than 0: programs by their absolute paths, with
        /// arguments, like `[["/usr/sbin/nginx", "-t"]]`. No shell reads them. They run as the agent's user without
        /// capabilities, in `/`, with `TIDEGATE_SITE`, `TIDEGATE_FROM`, `TIDEGATE_NODE`, `TIDEGATE_GENERATION` and `PATH`. If one
        /// fails, `target` is what it was, and they run once more, with the names of both sites exchanged.
        commands: Vec<At<Vec<String>>> = Vec::new();
        /// How long all of them may take, and again if they are undone.
        timeout: Duration = HOOK_TIMEOUT, in HOOK_TIMEOUT_MIN..=HOOK_TIMEOUT_MAX;
    }
}

/// What the agent of this node does; what is wrong is among the problems.
pub(super) fn moves(
    file: &AgentMovesFile,
    folder: &Path,
    node: &str,
    problems: &mut Problems,
) -> MovesConfig {
    let sites = &file.site.value;
    if sites.len() > SITES_MAX {
        let message = format!("at most {SITES_MAX} sites can take part in moves");
        problems.push(Problem::new(file.site.place(), message, "too many"));
    }
    if sites.len() == 1 {
        let message = "nodes move between two sites at least";
        let problem = Problem::new(file.site.place(), message, "the only one");
        problems.push(problem.help("list all sites that have `nodes` at the front-ends"));
    }
    MovesConfig {
        port: u16::try_from(file.port.value).unwrap_or(u16::MAX),
        state: file.state.value.as_ref().map(|it| folder.join(it)),
        node: node.to_owned(),
        sites: sites.iter().map(|it| hook(it, folder, problems)).collect(),
    }
}

fn hook(file: &At<SiteHookFile>, folder: &Path, problems: &mut Problems) -> SiteHook {
    let name = &file.name.value;
    let template = match (&file.template.value, &file.target.value) {
        (Some(template), Some(target)) => Some(HookTemplate {
            template: folder.join(template),
            target: target.clone(),
        }),
        (None, None) => {
            if file.commands.is_empty() {
                let message = format!("nothing is done for site `{name}`");
                let problem = Problem::new(file.place(), message, "needs `commands`");
                problems.push(problem.help("or `template` and `target`, and `commands`"));
            }
            None
        }
        (Some(_), None) => {
            let at = file.template.place();
            problems.push(Problem::new(
                at,
                "a template without a `target`",
                "for which file?",
            ));
            None
        }
        (None, Some(_)) => {
            let at = file.target.place();
            problems.push(Problem::new(
                at,
                "a target without a `template`",
                "made from which file?",
            ));
            None
        }
    };
    if file.commands.len() > COMMANDS_MAX {
        let message = format!("more than {COMMANDS_MAX} commands");
        let problem = Problem::new(file.commands.place(), message, "too many");
        problems.push(problem.help("put them into a script"));
    }
    let hook = SiteHook {
        name: name.clone(),
        template,
        commands: file.commands.iter().map(|it| it.value.clone()).collect(),
        timeout: file.timeout.value,
    };
    for error in hook.check() {
        let at = place(file, error.part);
        problems.push(Problem::new(at, "an agent must not use this", error.why));
    }
    hook
}

fn place(file: &SiteHookFile, part: HookPart) -> Range<usize> {
    match part {
        HookPart::Template => file.template.place(),
        HookPart::Target => file.target.place(),
        HookPart::Command(number) => {
            let command = file.commands.get(number);
            command.map_or_else(|| file.commands.place(), At::place)
        }
    }
}
