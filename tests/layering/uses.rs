//! Which files of a package use which others, from the paths in their text: `use` declarations and paths in the code.
//!
//! A re-export that its own file does not use is no edge: who names it uses the file that it leads to. Names are not resolved
//! beyond modules and re-exports, and modules for tests may be left out.

use std::collections::{BTreeMap, BTreeSet};

/// A path, absolute within the package: `server`, `edge`, `client`, `Client`.
pub type Path = Vec<String>;

/// A path that a file names.
struct PathUse {
    /// The module, in the file, that names it.
    module: Path,
    path: Path,
    /// The name of an item that a `pub use` passes on.
    passes_on: Option<String>,
}

/// What is read of one file.
struct Source {
    named: Vec<PathUse>,
    /// The first segments of all paths in its code.
    words: BTreeSet<String>,
}

/// The files of a package.
pub struct Package {
    /// By path, relative to the package's `src`.
    sources: BTreeMap<String, Source>,
    /// Each module's file.
    files: BTreeMap<Path, String>,
    /// What a module passes on: where each name leads.
    passed_on: BTreeMap<Path, BTreeMap<String, Path>>,
}

impl Package {
    /// Reads files: the path relative to `src`, and the text. `with_tests`: modules and items for tests count, too.
    pub fn read<'a>(files: impl Iterator<Item = (&'a str, &'a str)>, with_tests: bool) -> Self {
        let mut package = Self { sources: BTreeMap::new(), files: BTreeMap::new(), passed_on: BTreeMap::new() };
        for (path, text) in files {
            let module = module_of(path);
            let tokens = tokens(&code_of(text));
            let mut reader = Reader::new(&tokens, &module, with_tests);
            reader.read();
            for named in &reader.named {
                if let Some(name) = &named.passes_on {
                    let names = package.passed_on.entry(named.module.clone()).or_default();
                    names.insert(name.clone(), named.path.clone());
                }
            }
            let named = reader.named;
            let words = reader.words;
            package.files.insert(module, path.to_owned());
            package.sources.insert(path.to_owned(), Source { named, words });
        }
        package
    }

    /// All paths that a file names, without those that it only passes on.
    pub fn paths_of(&self, file: &str) -> impl Iterator<Item = &Path> {
        let source = &self.sources[file];
        let is_used = |named: &&PathUse| match &named.passes_on {
            Some(name) => source.words.contains(name),
            None => true,
        };
        source.named.iter().filter(is_used).map(|named| &named.path)
    }

    /// The file that a path leads to, by re-exports.
    pub fn file_of(&self, path: &[String]) -> Option<&str> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let n = (0..=path.len()).rev().find(|n| self.files.contains_key(&path[..*n]))?;
            let (module, rest) = path.split_at(n);
            let onward = rest.first().and_then(|name| self.passed_on.get(module)?.get(name));
            let Some(onward) = onward else { return self.files.get(module).map(String::as_str) };
            path = onward.iter().chain(&rest[1..]).cloned().collect();
        }
        None
    }

    /// Groups of files of which each uses, by others, each of the others; the largest first.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for file in self.sources.keys() {
            let used = self.paths_of(file).filter_map(|path| self.file_of(path)).filter(|used| used != file);
            uses.insert(file, used.collect());
        }
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            uses.keys().map(|file| (*file, reached_from(file, &uses))).collect();
        let mut circles = BTreeSet::new();
        for (file, from_it) in &reached {
            let circle: Vec<&str> = from_it.iter().filter(|other| reached[*other].contains(file)).copied().collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        let mut circles: Vec<_> = circles.into_iter().collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }
}

/// All files that a file uses, by others too; itself, if it is one of them.
fn reached_from<'a>(file: &str, uses: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = uses[file].iter().copied().collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(&uses[file]);
        }
    }
    reached
}

/// The module that a file is.
fn module_of(path: &str) -> Path {
    let mut segments: Path = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if segments.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        segments.pop();
    }
    segments
}

/// Goes through the tokens of a file.
struct Reader<'a> {
    tokens: &'a [String],
    at: usize,
    with_tests: bool,
    /// The module that the file is.
    own: &'a [String],
    /// The module, in the file, that is being read.
    module: Path,
    /// Open braces: of a module its parent's length, else none.
    braces: Vec<Option<usize>>,
    /// Modules that the file declares.
    children: BTreeSet<String>,
    /// What is next is for tests.
    is_for_tests: bool,
    named: Vec<PathUse>,
    words: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    fn new(tokens: &'a [String], own: &'a [String], with_tests: bool) -> Self {
        let module = own.to_vec();
        Self {
            tokens,
            at: 0,
            with_tests,
            own,
            module,
            braces: Vec::new(),
            children: BTreeSet::new(),
            is_for_tests: false,
            named: Vec::new(),
            words: BTreeSet::new(),
        }
    }

    fn token(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn starts_with(&self, expect: &[&str]) -> bool {
        expect.iter().enumerate().all(|(ahead, token)| self.token(ahead) == *token)
    }

    fn read(&mut self) {
        while self.at < self.tokens.len() {
            if self.starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
                self.is_for_tests = !self.with_tests;
                self.at += 7;
            } else if self.starts_with(&["#", "["]) || self.starts_with(&["#", "!", "["]) {
                self.skip_attribute();
            } else if self.is_for_tests {
                self.skip_item();
            } else {
                self.read_token();
            }
        }
    }

    fn read_token(&mut self) {
        match self.token(0) {
            "mod" if self.token(2) == ";" => {
                self.children.insert(self.token(1).to_owned());
                self.at += 3;
            }
            "mod" if self.token(2) == "{" => {
                self.braces.push(Some(self.module.len()));
                self.module.push(self.token(1).to_owned());
                self.at += 3;
            }
            "use" => self.read_use(),
            "{" => {
                self.braces.push(None);
                self.at += 1;
            }
            "}" => {
                if let Some(Some(length)) = self.braces.pop() {
                    self.module.truncate(length);
                }
                self.at += 1;
            }
            // `pub(in path)` says who may use it.
            "in" if self.at >= 2 && self.tokens[self.at - 1] == "(" && self.tokens[self.at - 2] == "pub" => {
                while self.token(0) != ")" {
                    self.at += 1;
                }
            }
            token if is_word(token) => self.read_path(),
            _ => self.at += 1,
        }
    }

    fn read_path(&mut self) {
        let mut path = vec![self.token(0).to_owned()];
        // What follows a value or a type is no path of its own.
        let is_first = self.at == 0 || !["::", "."].contains(&self.tokens[self.at - 1].as_str());
        self.at += 1;
        while self.token(0) == "::" && is_word(self.token(1)) {
            path.push(self.token(1).to_owned());
            self.at += 2;
        }
        if !is_first {
            return;
        }
        self.words.insert(path[0].clone());
        if path.len() > 1 {
            self.name(&path, None);
        }
    }

    fn read_use(&mut self) {
        let is_public = self.at > 0 && ["pub", ")"].contains(&self.tokens[self.at - 1].as_str());
        self.at += 1;
        self.read_use_tree(&[], is_public);
    }

    /// Reads up to the `,`, `}` or `;` behind a branch of a `use`.
    fn read_use_tree(&mut self, prefix: &[String], is_public: bool) {
        let mut path = prefix.to_vec();
        loop {
            let token = self.token(0);
            self.at += 1;
            match token {
                "{" => {
                    while self.token(0) != "}" {
                        self.read_use_tree(&path, is_public);
                        if self.token(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "*" => return self.name(&path, None),
                // `self` behind a prefix is the prefix.
                "self" if !path.is_empty() => {}
                token => path.push(token.to_owned()),
            }
            if self.token(0) == "::" {
                self.at += 1;
                continue;
            }
            let mut name = path.last().cloned().unwrap_or_default();
            if self.token(0) == "as" {
                name = self.token(1).to_owned();
                self.at += 2;
            }
            return self.name(&path, is_public.then_some(name));
        }
    }

    /// Notes a path, if it is one within the package.
    fn name(&mut self, path: &[String], passes_on: Option<String>) {
        let first = path.first().map_or("", String::as_str);
        let absolute: Path = match first {
            "crate" => path[1..].to_vec(),
            "self" => self.module.iter().chain(&path[1..]).cloned().collect(),
            "super" => {
                let n = path.iter().take_while(|segment| *segment == "super").count();
                let up = self.module.len().saturating_sub(n);
                self.module[..up].iter().chain(&path[n..]).cloned().collect()
            }
            child if self.children.contains(child) && self.module == self.own => {
                self.module.iter().chain(path).cloned().collect()
            }
            _ => return,
        };
        self.named.push(PathUse { module: self.module.clone(), path: absolute, passes_on });
    }

    fn skip_attribute(&mut self) {
        while self.token(0) != "[" {
            self.at += 1;
        }
        self.skip_block("[", "]");
    }

    /// Skips an item up to its `;` or the end of its block.
    fn skip_item(&mut self) {
        self.is_for_tests = false;
        while self.at < self.tokens.len() {
            match self.token(0) {
                ";" => {
                    self.at += 1;
                    return;
                }
                "{" => return self.skip_block("{", "}"),
                "(" => self.skip_block("(", ")"),
                "[" => self.skip_block("[", "]"),
                _ => self.at += 1,
            }
        }
    }

    fn skip_block(&mut self, open: &str, close: &str) {
        let mut depth = 0_usize;
        while self.at < self.tokens.len() {
            let token = self.token(0);
            self.at += 1;
            if token == open {
                depth += 1;
            } else if token == close {
                depth -= 1;
                if depth == 0 {
                    return;
                }
            }
        }
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut word = String::new();
    for c in code.chars() {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            tokens.push(std::mem::take(&mut word));
        }
        match c {
            c if c.is_whitespace() => {}
            // The first of two colons waits for the second.
            ':' if tokens.last().is_some_and(|last| last == ":") => {
                tokens.pop();
                tokens.push("::".to_owned());
            }
            c => tokens.push(c.to_string()),
        }
    }
    if !word.is_empty() {
        tokens.push(word);
    }
    tokens
}

/// The text without comments, and with nothing in its literals of text.
pub fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut code = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let c = at(i);
        if c == '/' && at(i + 1) == '/' {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            while i < chars.len() && !(at(i) == '*' && at(i + 1) == '/') {
                i += 1;
            }
            i += 2;
        } else if let Some(end) = end_of_raw(&chars, i) {
            code.push_str("\"\"");
            i = end;
        } else if c == '"' {
            i += 1;
            while i < chars.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            code.push_str("\"\"");
            i += 1;
        } else if c == '\'' && at(i + 1) == '\\' {
            i += 3;
            while i < chars.len() && at(i) != '\'' {
                i += 1;
            }
            i += 1;
        } else if c == '\'' && at(i + 2) == '\'' {
            i += 3;
        } else {
            code.push(c);
            i += 1;
        }
    }
    code
}

/// Where a raw literal that begins here ends.
fn end_of_raw(chars: &[char], begin: usize) -> Option<usize> {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let before = begin.checked_sub(1).map_or(' ', |i| chars[i]);
    if chars[begin] != 'r' || (is_of_word(before) && before != 'b') {
        return None;
    }
    let n = chars[begin + 1..].iter().take_while(|c| **c == '#').count();
    let open = begin + 1 + n;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: usize| chars[i] == '"' && chars[i + 1..].iter().take_while(|c| **c == '#').count() >= n;
    let close = (open + 1..chars.len()).find(|i| closes(*i))?;
    Some(close + 1 + n)
}
