//! Configuration errors and where they occur.

use std::fmt;
use std::path::PathBuf;

/// An invalid configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read", path.display())]
    Unreadable {
        /// The path as given.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// All problems, in the order found; never empty. Displayed one per line.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// These problems of the merged sources, at least one.
    pub fn of_merged(messages: Vec<String>) -> Self {
        let problems = messages.into_iter().map(|message| Problem { origin: Origin::Merged, message });
        Self::Invalid(problems.collect())
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// One problem and its correction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it occurs.
    pub origin: Origin,
    /// What is wrong and what would be valid, on one line.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)
    }
}

/// The source of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file, counted from 1.
    File {
        /// The path as given.
        path: PathBuf,
        /// The line number, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A command-line option.
    Option(String),
    /// The merged sources.
    Merged,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Option(name) => write!(f, "option {name}"),
            Self::Merged => f.write_str("the configuration as a whole"),
        }
    }
}
