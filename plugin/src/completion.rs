//! Words for shells.
//!
//! kubectl completes the words of a plugin by running `kubectl_complete-<plugin>` with them; that prints
//! one candidate a line and, last, a directive of cobra's (`:4` is "no file names").

use std::io::Write as _;

use clap::{Command as Parser, CommandFactory, Parser as _};
use clap_complete::generate;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use leasehold_core::explain::{Objects, World};

use super::args::{Arguments, CompleteArguments, CompletionArguments};
use super::connect::Cluster;
use super::error::PluginError;
use super::outcome::Outcome;
use super::{output, read};

/// cobra's `ShellCompDirectiveNoFileComp`.
const NO_FILES: &str = ":4";

/// Prints the script for a shell.
pub(super) fn script(asked: CompletionArguments) -> Result<Outcome, PluginError> {
    let mut script = Vec::new();
    let mut parser = Arguments::command().bin_name("kubectl-leasehold");
    generate(asked.shell, &mut parser, "kubectl-leasehold", &mut script);
    let written = std::io::stdout().lock().write_all(&script);
    written.map_err(PluginError::Output)?;
    Ok(Outcome::Well)
}

/// The kind of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// One of these.
    Words(Vec<String>),
    /// A Service.
    Service,
    /// A node.
    Node,
}

/// Prints what the last of these words may become.
pub(super) async fn answer(asked: &CompleteArguments) -> Result<Outcome, PluginError> {
    let words: Vec<String> =
        asked.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", &[][..]),
    };
    let candidates = match wanted(before, last) {
        Wanted::Words(words) => words,
        Wanted::Service => names(before, services).await,
        Wanted::Node => names(before, nodes).await,
    };
    let fitting = candidates.into_iter().filter(|word| word.starts_with(last));
    let lines: String = fitting.map(|word| word + "\n").collect();
    output::print(&format!("{lines}{NO_FILES}\n"))?;
    Ok(Outcome::Well)
}

/// The kind of the word that may follow `before`, where `last` was begun.
fn wanted(before: &[String], last: &str) -> Wanted {
    let root = Arguments::command();
    let command = before.iter().find_map(|word| root.find_subcommand(word));
    let previous = before.last().map_or("", String::as_str);
    if matches!(previous, "--to" | "--node-down") {
        return Wanted::Node;
    }
    if matches!(previous, "-o" | "--output") {
        return Wanted::Words(formats(command.unwrap_or(&root)));
    }
    let Some(command) = command else {
        let visible = root.get_subcommands().filter(|it| !it.is_hide_set());
        let names = visible.map(|it| it.get_name().to_owned());
        let flags = if last.starts_with('-') { flags(&root) } else { Vec::new() };
        return Wanted::Words(names.chain(flags).collect());
    };
    if last.starts_with('-') {
        return Wanted::Words(flags(command).into_iter().chain(flags(&root)).collect());
    }
    match command.get_name() {
        "explain" | "move" => Wanted::Service,
        "drain" | "undrain" => Wanted::Node,
        "completion" => Wanted::Words(["bash", "zsh", "fish"].map(str::to_owned).to_vec()),
        _ => Wanted::Words(Vec::new()),
    }
}

fn flags(command: &Parser) -> Vec<String> {
    let long = command.get_arguments().filter_map(|it| it.get_long());
    long.map(|name| format!("--{name}")).collect()
}

fn formats(command: &Parser) -> Vec<String> {
    let output = command.get_arguments().find(|it| it.get_long() == Some("output"));
    let values = output.map(clap::Arg::get_possible_values).unwrap_or_default();
    values.iter().map(|value| value.get_name().to_owned()).collect()
}

async fn services(cluster: &Cluster) -> Result<Vec<String>, PluginError> {
    let services = read::list(cluster, Api::all(cluster.client.clone())).await?;
    let world = World::of(&Objects { services, ..Objects::default() });
    let ours = world.services.iter().filter(|(_, row)| row.ours);
    let short = |name: &String| match name.split_once('/') {
        Some((of, name)) if of == cluster.namespace => name.to_owned(),
        _ => name.clone(),
    };
    Ok(ours.map(|(name, _)| short(name)).collect())
}

async fn nodes(cluster: &Cluster) -> Result<Vec<String>, PluginError> {
    let nodes: Vec<Node> = read::list(cluster, Api::all(cluster.client.clone())).await?;
    Ok(nodes.iter().map(ResourceExt::name_any).collect())
}

/// Names from the cluster; none where it does not answer, for nobody wants an error in a prompt.
async fn names(
    before: &[String],
    of: impl AsyncFn(&Cluster) -> Result<Vec<String>, PluginError>,
) -> Vec<String> {
    let words = std::iter::once("kubectl-leasehold").chain(before.iter().map(String::as_str));
    // The command is not complete yet; its flags are.
    let flags = Arguments::try_parse_from(words.chain(["status"]))
        .or_else(|_| Arguments::try_parse_from(["kubectl-leasehold", "status"]));
    let Ok(flags) = flags else { return Vec::new() };
    let Ok(cluster) = Cluster::connect(&flags.cluster).await else { return Vec::new() };
    of(&cluster).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed_by_what_comes_before_them() {
        let words =
            |words: &[&str]| Wanted::Words(words.iter().map(|it| (*it).to_owned()).collect());
        for (line, last, expected) in [
            (&["owners", "-o"][..], "", words(&["table", "wide", "json", "yaml"])),
            (&["explain"], "sh", Wanted::Service),
            (&["move"], "", Wanted::Service),
            (&["move", "shop", "--to"], "", Wanted::Node),
            (&["simulate", "--node-down"], "", Wanted::Node),
            (&["drain"], "node", Wanted::Node),
            (&["completion"], "", words(&["bash", "zsh", "fish"])),
            (&["status"], "", words(&[])),
        ] {
            let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(wanted(&line, last), expected, "{line:?} {last}");
        }
        let Wanted::Words(first) = wanted(&[], "") else { panic!() };
        assert!(first.contains(&"owners".to_owned()) && !first.contains(&"__complete".to_owned()));
        let Wanted::Words(flags) = wanted(&["move".to_owned()], "--") else { panic!() };
        assert!(flags.contains(&"--to".to_owned()) && flags.contains(&"--context".to_owned()));
    }
}
