//! `antiphon man`: the man pages, in roff.

use super::{Cli, CliError, print};
use clap::{Args, CommandFactory};
use clap_mangen::Man;
use std::path::PathBuf;

/// Which pages, and where they go.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon man | man -l -
  antiphon man --out ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Write the pages of all commands into this folder, instead of the first one to stdout
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &ManArgs) -> Result<(), CliError> {
    let Some(folder) = &args.out else { return print::bytes(&first_page()?) };
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
        .map_err(|error| CliError::file("written", folder, &error))
}

/// The page of `antiphon` itself, which names the others.
fn first_page() -> Result<Vec<u8>, CliError> {
    let mut page = Vec::new();
    Man::new(Cli::command().disable_help_subcommand(true)).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_names_the_commands_and_each_has_a_page() {
        let page = String::from_utf8(first_page().expect("rendered")).expect("text");
        let folder = tempfile::tempdir().expect("a folder");
        run(&ManArgs { out: Some(folder.path().join("man1")) }).expect("written");
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(page.contains(&format!("antiphon\\-{name}(1)")), "{name} is not in {page}");
            let file = folder.path().join(format!("man1/antiphon-{name}.1"));
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(text.contains("NAME"), "{name}: {text}");
        }
        assert!(folder.path().join("man1/antiphon-models-pull.1").exists(), "commands of commands have theirs");
    }
}
