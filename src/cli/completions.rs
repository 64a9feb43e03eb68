//! `antiphon completions`: the script by which a shell completes commands and options.

use super::{Cli, CliError, print};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// For which shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon completions bash > ~/.local/share/bash-completion/completions/antiphon
  antiphon completions zsh > ~/.zfunc/_antiphon            in a folder of $fpath
  antiphon completions fish > ~/.config/fish/completions/antiphon.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> Result<(), CliError> {
    print::bytes(&script(args.shell))
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "antiphon", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn each_shell_gets_a_script_that_names_the_commands() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).expect("text");
            for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(script.contains("listen"), "{shell}: the options of serve");
        }
    }
}
