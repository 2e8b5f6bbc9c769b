//! The flags of the programs.

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};

use crate::markdown::{cell, code, sentence, table};

pub fn page() -> String {
    let mut page = "# Flags\n\n\
        This page lists the flags of all programs, with their environment variables and defaults. `--help` \
        shows them for the installed version. A flag takes precedence over its environment variable.\n\n"
        .to_owned();
    for command in [
        leasehold::config::Config::command(),
        leasehold_operator::config::Config::command(),
        kubectl_leasehold::args::Arguments::command(),
    ] {
        let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
        describe(&name, 2, &command, &mut page);
    }
    page
}

fn describe(name: &str, level: usize, command: &Command, page: &mut String) {
    page.extend([&"#".repeat(level), " ", name, "\n\n"]);
    let about = text(command.get_long_about().or_else(|| command.get_about()));
    page.extend([&sentence(&about), "\n\n"]);
    let (positional, flags): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(|it| !it.is_hide_set()).partition(|it| it.is_positional());
    if !positional.is_empty() {
        let rows = positional.into_iter().map(|it| [code(&value(it)), meaning(it)]);
        page.push_str(&table(["Argument", "Meaning"], rows));
    }
    if flags.iter().any(|flag| flag.get_env().is_some()) {
        let rows =
            flags.into_iter().map(|it| [spelling(it), variable(it), default(it), meaning(it)]);
        page.push_str(&table(["Flag", "Environment variable", "Default", "Meaning"], rows));
    } else if !flags.is_empty() {
        let rows = flags.into_iter().map(|it| [spelling(it), default(it), meaning(it)]);
        page.push_str(&table(["Flag", "Default", "Meaning"], rows));
    }
    let after = text(command.get_after_help());
    if !after.is_empty() {
        page.extend(["```text\n", &after, "\n```\n\n"]);
    }
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        describe(&format!("{name} {}", subcommand.get_name()), level + 1, subcommand, page);
    }
}

fn text(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// `-n`, `--namespace NAME`
fn spelling(flag: &Arg) -> String {
    let value = if flag.get_action().takes_values() { value(flag) } else { String::new() };
    let optional = flag.get_num_args().is_some_and(|number| number.min_values() == 0);
    let value = match (value.is_empty(), optional) {
        (true, _) => value,
        (false, true) => format!("[={value}]"),
        (false, false) => format!(" {value}"),
    };
    let short = flag.get_short().map(|short| code(&format!("-{short}")));
    let long = flag.get_long().map(|long| code(&format!("--{long}{value}")));
    short.into_iter().chain(long).collect::<Vec<_>>().join(", ")
}

fn value(argument: &Arg) -> String {
    let named = argument.get_value_names().and_then(|names| names.first());
    named.map_or_else(|| argument.get_id().as_str().to_uppercase(), ToString::to_string)
}

fn variable(flag: &Arg) -> String {
    flag.get_env().and_then(|name| name.to_str()).map(code).unwrap_or_default()
}

fn default(flag: &Arg) -> String {
    if flag.is_required_set() {
        return "required".to_owned();
    }
    let values = flag.get_default_values().iter().filter_map(|value| value.to_str());
    values.map(code).collect::<Vec<_>>().join(", ")
}

fn meaning(argument: &Arg) -> String {
    let help = text(argument.get_long_help().or_else(|| argument.get_help()));
    let named =
        argument.get_value_names().is_some_and(|names| names.iter().any(|it| it.contains('|')));
    let values = argument.get_possible_values();
    let listed = values.iter().filter(|value| !named && !value.is_hide_set()).map(|value| {
        let about = value
            .get_help()
            .map(|it| format!(": {}", sentence(&it.to_string())))
            .unwrap_or_default();
        format!("<br>{}{}", code(value.get_name()), cell(&about))
    });
    format!("{}{}", cell(&sentence(&help)), listed.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_spelled_as_they_are_given() {
        let flag = Arg::new("output").short('o').long("output").value_name("FORMAT");
        assert_eq!(spelling(&flag), "`-o`, `--output FORMAT`");
        let switch = Arg::new("all").long("all").num_args(0..=1).value_name("true|false");
        assert_eq!(spelling(&switch), "`--all[=true\\|false]`");
    }
}
