//! `antiphon man`: the man pages, in roff.

use super::{Cli, CliError, print};
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use std::path::{Path, PathBuf};

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
    let command = root();
    let Some(folder) = &args.out else { return print::bytes(&page(&Man::new(command))?) };
    std::fs::create_dir_all(folder).map_err(|error| CliError::file("written", folder, &error))?;
    write(command, folder)
}

/// The command line with the names that the pages have. `help` has no page.
fn root() -> Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// Writes the page of a command and those of the commands below it.
fn write(command: Command, folder: &Path) -> Result<(), CliError> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below.clone(), folder)?;
    }
    let man = Man::new(command);
    let file = folder.join(man.get_filename());
    std::fs::write(&file, page(&man)?).map_err(|error| CliError::file("written", &file, &error))
}

/// A page. Examples and tables of the help keep their lines.
fn page(man: &Man) -> Result<Vec<u8>, CliError> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = String::from_utf8(page).map_err(|error| CliError::failed(&error))?;
    let Some((before, extra)) = page.split_once(".SH EXTRA\n") else { return Ok(page.into_bytes()) };
    let (extra, after) = extra.split_at(extra.find("\n.SH ").map_or(extra.len(), |at| at + 1));
    Ok(format!("{before}.SH EXAMPLES AND NOTES\n.nf\n{extra}.fi\n{after}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_names_the_commands_and_each_has_a_page() {
        let page = String::from_utf8(page(&Man::new(root())).expect("rendered")).expect("text");
        assert!(page.contains("\n.nf\n") && page.contains("\n.fi\n.SH VERSION"), "{page}");
        let folder = tempfile::tempdir().expect("a folder");
        run(&ManArgs { out: Some(folder.path().join("man1")) }).expect("written");
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let written = name.replace('-', "\\-");
            assert!(page.contains(&format!("antiphon\\-{written}(1)")), "{name} is not in {page}");
            let file = folder.path().join(format!("man1/antiphon-{name}.1"));
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(text.contains("NAME"), "{name}: {text}");
        }
        assert!(folder.path().join("man1/antiphon-models-pull.1").exists(), "commands of commands have theirs");
    }
}
