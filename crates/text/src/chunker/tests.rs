//! Golden texts and properties of the chunker.

use super::*;
use proptest::prelude::*;

fn cut(pieces: &[&str]) -> Vec<Chunk> {
    let mut chunker = Chunker::new(Language::English);
    let mut chunks: Vec<Chunk> = pieces.iter().flat_map(|piece| chunker.push(piece)).collect();
    chunks.extend(chunker.finish());
    chunks
}

/// Compares the spoken chunks of a text, without the empty ones.
fn check(text: &str, expected: &[&str]) {
    let chunks = cut(&[text]);
    let spoken: Vec<&str> = chunks.iter().map(|chunk| chunk.spoken.as_str()).filter(|text| !text.is_empty()).collect();
    assert_eq!(spoken, expected, "{text:?}");
    assert_eq!(chunks.iter().map(|chunk| chunk.raw.as_str()).collect::<String>(), text);
}

#[test]
fn the_first_clause_comes_early_and_later_chunks_are_sentences() {
    check(
        "Well of course, I can tell you that. The answer is here, I think. It is short.",
        &["Well of course,", "I can tell you that.", "The answer is here, I think.", "It is short."],
    );
    check("Sure! I can help you.", &["Sure!", "I can help you."]);
    check("Yes, I can help you with that today.", &["Yes, I can help you with that today."]);
    check("Hi. Yes. No. I do not know that. Ok.", &["Hi.", "Yes. No. I do not know that.", "Ok."]);
}

#[test]
fn a_first_clause_does_not_wait_for_the_blank() {
    let mut chunker = Chunker::new(Language::English);
    assert_eq!(chunker.push("Well of course"), []);
    assert_eq!(chunker.push(",").len(), 1);
}

#[test]
fn text_without_punctuation_flows() {
    check(
        "this is a text that was written by somebody who never uses any marks at all",
        &["this is a text that was written", "by somebody who never uses any marks at all"],
    );
    check("one two three four five six seven eight nine ten", &["one two three four five six seven eight", "nine ten"]);
    let long = "word ".repeat(200);
    let chunks = cut(&[&long]);
    assert!(chunks.len() >= 4);
    assert!(chunks.iter().all(|chunk| chunk.raw.chars().count() <= 301 && !chunk.raw.ends_with("wor")));
}

#[test]
fn numbers_stay_whole() {
    check(
        "It is about 3.14 or 1,000 or so at 10:30, they say.",
        &["It is about 3.14 or 1,000", "or so at 10 30, they say."],
    );
    check("In 1999. Then 5.", &["In 1999.", "Then 5."]);
    check("a b c d e f 10 – 20 km away", &["a b c d e f", "10 to 20 kilometers away"]);
    check("a b c d e f g 5 km away", &["a b c d e f g", "5 kilometers away"]);
}

#[test]
fn abbreviations_end_nothing() {
    check("Ask Dr. Smith e.g. today.", &["Ask Dr. Smith for example today."]);
    check("The U.S. Army is big. Yes.", &["The U.S. Army is big.", "Yes."]);
    check("Say J. R. Tolkien. Now.", &["Say J. R. Tolkien.", "Now."]);
    check("At 5 p.m. we go. At 5 p.m. They go home.", &["At 5 p.m. we go.", "At 5 p.m. They go home."]);
    check("No. I do not.", &["No.", "I do not."]);
    check("A Ph.D. in law is rare. An M.Sc. is not.", &["A Ph.D. in law is rare.", "An M.Sc. is not."]);
    check("She is a Ph.D. He is an M.D. now.", &["She is a Ph.D.", "He is an M.D. now."]);
    check("Take No. 5 now.", &["Take number 5 now."]);
    check("Call me on Mon, Jan 3. Yes.", &["Call me on Monday, January 3.", "Yes."]);
}

#[test]
fn addresses_and_links_stay_whole() {
    check("Go to https://a.example.com/x,y?z=1!b now.", &["Go to a dot example dot com now."]);
    check("See [this page, please](https://e.com/a b) now.", &["See this page, please now."]);
    check("Or mail me.too@example.com, please.", &["Or mail me dot too at example dot com,", "please."]);
}

#[test]
fn lines_and_lists_are_spoken_apart() {
    check(
        "# Soup\n\nYou need:\n- 2 onions\n- salt\n\n1. Cut them.\n2. Cook",
        &["Soup.", "You need:", "2 onions.", "salt.", "1, Cut them.", "2, Cook"],
    );
    check("This line goes\non here.", &["This line goes on here."]);
    check("A paragraph\n\nAnother one", &["A paragraph.", "Another one"]);
}

#[test]
fn code_is_shown_and_not_spoken() {
    check("Like this:\n```rust\nlet a = 1;\n\nfn f() {}\n```\nIs that clear?", &["Like this:", "Is that clear?"]);
    check("```\nnever closed. So it is", &[]);
    check("Use `let x` here.", &["Use let x here."]);
}

#[test]
fn code_begins_at_a_fence_whatever_stands_above() {
    check("Sure, here it is! 🎉\n\n```python\nprint('hi')\n```\nLet me know.", &["Sure, here it is!", "Let me know."]);
    check("---\n\n```python\nprint('hi')\n```\nLet me know.", &["Let me know."]);
    check("**Sure!**\n```python\nprint('hi')\n```\nLet me know.", &["Sure!", "Let me know."]);
    check("Like this:\n~~~\nlet a = 1;\n```\n~~~\nIs that clear?", &["Like this:", "Is that clear?"]);
    check("So it is\n~~~\nlet a = 1;\n~~~\nOk.", &["So it is.", "Ok."]);
    check("It takes\n~20 minutes.", &["It takes about 20 minutes."]);
    check("Nested:\n````markdown\n```sh\nls\n```\n````\nIs that clear?", &["Nested:", "Is that clear?"]);
}

#[test]
fn a_code_span_at_the_start_of_a_line_is_spoken() {
    check("```ls -la```\nIs that clear?", &["ls -la.", "Is that clear?"]);
    check("Run this:\n```ls -la``` and wait.\nIs that clear?", &["Run this:", "ls -la and wait.", "Is that clear?"]);
    check("```Of course, we can``` do that.", &["Of course,", "we can do that."]);
}

#[test]
fn bold_is_cut_like_plain_text() {
    check("**Of course, I** can *do* that.", &["Of course,", "I can do that."]);
}

#[test]
fn scripts_without_blanks_are_cut() {
    check(
        "你好，我很高兴认识你。今天天气很好，我们出去走走吧。",
        &["你好，我很高兴认识你。", "今天天气很好，我们出去走走吧。"],
    );
    check("¿Qué tal? Muy bien, gracias a todos.", &["Qué tal?", "Muy bien, gracias a todos."]);
    let long = "字".repeat(1_000);
    assert!(cut(&[&long]).iter().all(|chunk| chunk.raw.chars().count() <= 301));
}

#[test]
fn odd_input_is_bounded() {
    for text in ["a".repeat(5_000), " ".repeat(5_000), "\n".repeat(5_000), "`".repeat(5_000), "[".repeat(5_000)] {
        let chunks = cut(&[&text]);
        assert!(chunks.iter().all(|chunk| chunk.raw.chars().count() <= 301));
        assert_eq!(chunks.iter().map(|chunk| chunk.raw.as_str()).collect::<String>(), text);
    }
    assert_eq!(cut(&[]), []);
    check("😀 😀", &[]);
    check("...", &[]);
}

#[test]
fn a_finished_chunker_begins_again() {
    let mut chunker = Chunker::new(Language::English);
    chunker.push("```\ncode");
    chunker.finish();
    assert_eq!(chunker.push("Well of course, yes.")[0].spoken, "Well of course,");
}

#[test]
fn marks_of_a_voice_are_spoken_in_every_text() {
    for chunker in [Chunker::new(Language::English), Chunker::by_words(Language::English)] {
        let mut chunker = chunker.keeping(vec!["[laugh]".to_owned()]);
        for _ in 0..2 {
            let mut chunks = chunker.push("Oh no! [laugh]\n\n[laugh]");
            chunks.extend(chunker.finish());
            let spoken: Vec<&str> = chunks.iter().map(|chunk| chunk.spoken.as_str()).collect();
            assert_eq!(spoken.join(" "), "Oh no! [laugh] [laugh]");
        }
    }
}

/// Text made of all relevant kinds of elements, in any order.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => "[a-zA-Z]{1,8}",
        4 => Just(" ".to_owned()),
        2 => prop::sample::select(vec![
            ". ", ", ", "! ", "\n", "\n\n", "3.14", "1,000", "Dr. ", "e.g. ", "U.S. ", "**", "`", "```\n", "[", "](",
            ")", "- ", "# ", "—", " - ", "。", "，", "字字", "😀", "👨‍👩‍👧", "a@b.c", "https://x.y/z", "No. ", "5 km ", "$5.50",
            "|", "<b>", "&amp;", "\\", "_", "p.m. ", "½", "²", "…", "\u{0}", "\r\n",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..120).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn deltas_do_not_matter_and_nothing_is_lost(text in any_text(), sizes in prop::collection::vec(1usize..9, 1..12)) {
        let whole = cut(&[&text]);
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let end = rest.char_indices().nth(*size).map_or(rest.len(), |(at, _)| at);
            pieces.push(&rest[..end]);
            rest = &rest[end..];
        }
        prop_assert_eq!(&cut(&pieces), &whole);
        prop_assert_eq!(whole.iter().map(|chunk| chunk.raw.as_str()).collect::<String>(), text);
        for chunk in &whole {
            prop_assert!(!chunk.raw.is_empty());
            prop_assert!(chunk.raw.chars().count() <= boundary::MAX_CHARS + 1);
            prop_assert!(!chunk.spoken.contains(['\n', '`', '😀']) && !chunk.spoken.starts_with(' '));
        }
    }
}

/// Compares the spoken words of a text, pushed in pieces of `size` characters.
fn check_words(text: &str, expected: &[&str]) {
    for size in [1, 4, text.len().max(1)] {
        let mut chunker = Chunker::by_words(Language::English);
        let chars: Vec<char> = text.chars().collect();
        let mut chunks: Vec<Chunk> =
            chars.chunks(size).flat_map(|piece| chunker.push(&piece.iter().collect::<String>())).collect();
        chunks.extend(chunker.finish());
        let spoken: Vec<&str> =
            chunks.iter().map(|chunk| chunk.spoken.as_str()).filter(|text| !text.is_empty()).collect();
        assert_eq!(spoken, expected, "{text:?} in pieces of {size}");
        assert_eq!(chunks.iter().map(|chunk| chunk.raw.as_str()).collect::<String>(), text);
    }
}

#[test]
fn by_words_a_chunk_is_a_word_without_its_marks() {
    check_words("Well, of **course I** can.", &["Well,", "of", "course", "I", "can."]);
    check_words("See [the page](http://a.b/c) now", &["See", "the", "page", "now"]);
    check_words("你好，世界。好", &["你好，", "世界。", "好"]);
}

#[test]
fn by_words_what_is_read_together_stays_together() {
    check_words("About 5 % of it, Dr. Who.", &["About", "5 percent of", "it,", "Dr. Who."]);
    check_words("- one\n- two", &["one", ". two"]);
    check_words("# A title\n\nThen text\ngoes on.", &["A", "title", ". Then", "text", "goes", "on."]);
}

#[test]
fn by_words_code_is_shown_and_not_spoken() {
    check_words("Run this:\n```sh\nls -l a b\n```\nand wait.", &["Run", "this:", "and", "wait."]);
    check_words("Now 🎉\n```sh\nls -l a b\n```\nand wait.", &["Now", "and", "wait."]);
    check_words("Since 2024\n~~~\nls -l\n~~~\nit is", &["Since", "2024.", "it", "is"]);
    check_words("```ls -l``` is it", &["ls", "-l", "is", "it"]);
}

/// Compares the spoken chunks of a text in a language.
fn check_in(language: &str, text: &str, expected: &[&str]) {
    let mut chunker = Chunker::new(Language::of_tag(language));
    let mut chunks = chunker.push(text);
    chunks.extend(chunker.finish());
    let spoken: Vec<&str> = chunks.iter().map(|chunk| chunk.spoken.as_str()).collect();
    assert_eq!(spoken, expected, "{text:?}");
}

#[test]
fn each_language_has_its_own_abbreviations() {
    check_in("de", "Er kam am 5. November an. Dann ging er.", &["Er kam am 5. November an.", "Dann ging er."]);
    check_in("de", "Das sagt z. B. Dr. Weiß usw. oft.", &["Das sagt z. B. Dr. Weiß usw. oft."]);
    check_in(
        "de",
        "Heinrich VIII. hatte viele Frauen. Sie lebten.",
        &["Heinrich VIII. hatte viele Frauen.", "Sie lebten."],
    );
    check_in("de", "Es war 1999. Dann kam er.", &["Es war 1999.", "Dann kam er."]);
    check_in("de", "3. Oktober: Feiertag.\n2. Mai: keiner.", &["3. Oktober:", "Feiertag.", "2. Mai: keiner."]);
    check_in("de", "1. Öffne die App.\n2. Tippe auf Start.", &["1, Öffne die App.", "2, Tippe auf Start."]);
    check_in("es", "Llamó el Sr. García ayer. La Sra. López no.", &["Llamó el Sr. García ayer.", "La Sra. López no."]);
    check_in("ru", "Он живёт на ул. Ленина давно. Это далеко.", &["Он живёт на ул. Ленина давно.", "Это далеко."]);
    check_in(
        "fr",
        "Voici M. Dupont et Mme. Durand. Bonjour à tous.",
        &["Voici M. Dupont et Mme. Durand.", "Bonjour à tous."],
    );
    check_in(
        "it",
        "Parla il sig. Rossi adesso. Ascolta bene ora.",
        &["Parla il sig. Rossi adesso.", "Ascolta bene ora."],
    );
    check_in(
        "pl",
        "Mieszka przy ul. Długiej od dawna. To daleko.",
        &["Mieszka przy ul. Długiej od dawna.", "To daleko."],
    );
    check_in(
        "nl",
        "Dit is dhr. Jansen uit Delft. Hij komt vaak.",
        &["Dit is dhr. Jansen uit Delft.", "Hij komt vaak."],
    );
    check_in(
        "cs",
        "Přijede 5. listopadu k nám. Potom odjede domů.",
        &["Přijede 5. listopadu k nám.", "Potom odjede domů."],
    );
    check_in("sv", "Det är t.ex. den 5 november idag.", &["Det är t.ex. den 5 november idag."]);
    check_in("sv", "Han har bara 5. Hon har 3.", &["Han har bara 5.", "Hon har 3."]);
    check_in(
        "en",
        "The Jr. Miller spoke here. He is John Smith Jr. Then he left.",
        &["The Junior Miller spoke here.", "He is John Smith Junior.", "Then he left."],
    );
}
