//! Which punctuation ended a clause. espeak-ng 1.51 does not report it (Piper patches it so that it does), so it is
//! read from the piece of text the library took for the clause. Pure; called by the module above only.

/// What a clause ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// `.` and its kin.
    Period,
    /// `?`
    Question,
    /// `!`
    Exclamation,
    /// `,`
    Comma,
    /// `:`
    Colon,
    /// `;`
    Semicolon,
    /// `—` or `–`
    Dash,
    /// `…`, or two dots and more.
    Ellipsis,
}

impl Mark {
    /// Whether it ends a sentence.
    pub fn ends_sentence(self) -> bool {
        matches!(self, Self::Period | Self::Question | Self::Exclamation)
    }

    fn of(c: char) -> Option<Self> {
        Some(match c {
            '.' | '。' | '．' | '।' | '॥' | '۔' => Self::Period,
            '?' | '？' | '؟' | '\u{37e}' => Self::Question,
            '!' | '！' => Self::Exclamation,
            ',' | '，' | '、' | '،' => Self::Comma,
            ':' | '：' => Self::Colon,
            ';' | '；' | '؛' => Self::Semicolon,
            '—' | '–' => Self::Dash,
            '…' => Self::Ellipsis,
            _ => return None,
        })
    }
}

/// How a clause ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Its punctuation, where it has one.
    pub(super) mark: Option<Mark>,
    /// Whether an empty line follows, which ends a sentence without punctuation.
    pub(super) paragraph: bool,
}

/// How the clause ended that `taken` was read for. The library reads one character of the next clause ahead, so one may
/// stand behind the punctuation, except at the end of the text.
pub(super) fn end_of(taken: &str, is_last: bool) -> End {
    let is_edge = |c: char| c.is_whitespace() || "\"'”’»«“‘)]}」』*_".contains(c);
    let mut ahead = usize::from(!is_last);
    let mut newlines = 0;
    let mut rest = taken;
    while let Some(c) = rest.chars().next_back() {
        if Mark::of(c).is_some() {
            return End { mark: Some(strongest(rest)), paragraph: false };
        }
        if c == '\n' {
            newlines += 1;
        }
        if !is_edge(c) {
            // Two of the next clause's characters, or one where nothing is read ahead: no punctuation ended this one.
            if ahead == 0 || newlines > 0 {
                break;
            }
            ahead -= 1;
        }
        rest = &rest[..rest.len() - c.len_utf8()];
    }
    End { mark: None, paragraph: newlines >= 2 }
}

/// What a run of punctuation at the end of `text` means: a question before all, then an exclamation.
fn strongest(text: &str) -> Mark {
    let run: Vec<Mark> = text.chars().rev().map_while(Mark::of).collect();
    if let Some(mark) = [Mark::Question, Mark::Exclamation].into_iter().find(|mark| run.contains(mark)) {
        return mark;
    }
    let dots = run.iter().take_while(|mark| **mark == Mark::Period).count();
    if dots >= 2 { Mark::Ellipsis } else { run[0] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_found_where_the_library_stopped() {
        let check = |taken: &str, is_last: bool, mark: Option<Mark>| {
            assert_eq!(end_of(taken, is_last), End { mark, paragraph: false }, "{taken:?}");
        };
        // Each as espeak-ng 1.51 takes it.
        check("Hello, w", false, Some(Mark::Comma));
        check("Hello world.", true, Some(Mark::Period));
        check("hat? \"", false, Some(Mark::Question));
        check("k.)", false, Some(Mark::Period));
        check("He said \"Hello.\"", false, Some(Mark::Period));
        check("Wow!!! R", false, Some(Mark::Exclamation));
        check("eally?! Y", false, Some(Mark::Question));
        check("es...", true, Some(Mark::Ellipsis));
        check(" — e", false, Some(Mark::Dash));
        check("ix – s", false, Some(Mark::Dash));
        check("好，世", false, Some(Mark::Comma));
        check("नमस्ते। आ", false, Some(Mark::Period));
        check("a, b", false, Some(Mark::Comma));
        check("tail comma,", true, Some(Mark::Comma));
        check("end without", true, None);
        check("1,000.5", true, None);
        check("no space,after comma.And stop", true, None);
        check("list:\n-", false, Some(Mark::Colon));
        check("", true, None);
    }

    #[test]
    fn an_empty_line_ends_a_sentence() {
        assert_eq!(end_of("line two\n\nl", false), End { mark: None, paragraph: true });
        assert_eq!(end_of("line two\nl", false), End { mark: None, paragraph: false });
        assert_eq!(end_of("v2.5\n\nN", false), End { mark: None, paragraph: true });
    }
}
