//! Against the real library.

use super::*;

fn clauses(tag: &str, text: &str) -> Vec<Clause> {
    Phonemizer::open(tag, false).expect("espeak-ng is installed").clauses(text).expect("phonemes")
}

/// Phonemes and marks of each clause, sentences parted by `|`.
fn check(tag: &str, text: &str, expect: &str) {
    let mut said = String::new();
    for clause in clauses(tag, text) {
        let mark = clause.mark.map_or(String::new(), |mark| format!("{mark:?}"));
        said.push_str(&format!("{} {mark}{}", clause.phonemes, if clause.ends_sentence { "| " } else { " " }));
    }
    assert_eq!(said.trim(), expect, "{text:?}");
}

#[test]
fn text_becomes_clauses_with_their_punctuation() {
    check("en-us", "Hello, world! How are you?", "həlˈoʊ Comma wˈɜːld Exclamation| hˈaʊ ɑːɹ juː Question|");
    check("en-us", "Fine: yes; no.", "fˈaɪn Colon jˈɛs Semicolon nˈoʊ Period|");
    check("en-us", "It costs 3.14 dollars", "ɪt kˈɔsts θɹˈiː pɔɪnt wˈʌn fˈoːɹ dˈɑːlɚz |");
    check("en-us", "Yes… no — well", "jˈɛs Ellipsis nˈoʊ Dash wˈɛl |");
}

#[test]
fn each_language_has_its_own_sounds() {
    check("de", "Guten Tag.", "ɡˈuːtən tˈɑːk Period|");
    check("es", "¿Cómo estás? ¡Muy bien!", "kˈomo estˈas Question| mˈuj βjˈen Exclamation|");
    check("hi", "नमस्ते। आप कैसे हैं?", "nəmˈʌsteː Period| ˌaːp kˈɛːseː hɛ\u{303} Question|");
    // Tags that are no voice's name, only a language of one.
    check("en-gb", "water", "wˈɔːtə |");
    check("fr-fr", "garçon", "ɡaʁsˈɔ\u{303} |");
    check("pt-br", "São", "sɐ\u{303}ʊ\u{303} |");
}

#[test]
fn foreign_words_carry_no_marks_and_letters_are_decomposed() {
    let made = clauses("fr-fr", "un weekend");
    assert!(!made[0].phonemes.contains(['(', ')']), "{made:?}");
    assert_eq!(tidy("(en)wi (fr) \u{e7}a(b c)"), "wi c\u{327}a(b c)");
}

#[test]
fn ties_join_the_letters_of_one_phoneme() {
    let tied = Phonemizer::open("en-us", true).expect("espeak-ng is installed");
    assert_eq!(tied.clauses("boys now").expect("phonemes")[0].phonemes, "bˈɔ^ɪz nˈa^ʊ");
}

#[test]
fn what_cannot_be_spoken_has_no_clauses() {
    for text in ["", " ", "...", "?!", "😀", "\u{0}", "—"] {
        assert_eq!(clauses("en-us", text), [], "{text:?}");
    }
}

#[test]
fn any_text_is_read_to_its_end() {
    assert_eq!(clauses("en-us", "a\u{0}b\tc").len(), 1);
    let many = "This is a sentence of some words. ".repeat(300);
    assert_eq!(clauses("en-us", &many).len(), 300);
    // Without punctuation the library cuts where its buffer ends.
    let words = clauses("en-us", &"word ".repeat(2_000));
    assert_eq!(words.iter().map(|clause| clause.phonemes.split(' ').count()).sum::<usize>(), 2_000);
    assert!(!clauses("en-us", &"x".repeat(5_000)).is_empty());
}

#[test]
fn an_unknown_language_is_named() {
    let error = Phonemizer::open("tlh", false).expect_err("no Klingon").to_string();
    assert!(error.contains("no language \"tlh\""), "{error}");
    check("en-us", "Hello.", "həlˈoʊ Period|");
}

#[test]
fn many_threads_and_languages_at_once_give_what_one_gives() {
    let work = [("en-us", "Hello, world."), ("de", "Guten Tag."), ("fr-fr", "Bonjour à tous."), ("en-gb", "water")];
    let expected = work.map(|(tag, text)| clauses(tag, text));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    for ((tag, text), expected) in work.iter().zip(&expected) {
                        assert_eq!(clauses(tag, text), *expected, "{tag}");
                    }
                }
            });
        }
    });
}
