//! Golden texts and properties of the normalize.

use super::*;

fn check(text: &str, expected: &str) {
    let position = Position { line_start: true, ends_line: false };
    assert_eq!(speakable(text, position, Language::English, &[]), expected, "{text:?}");
}

#[test]
fn a_voice_is_english_by_its_first_subtag() {
    for (tag, is_english) in
        [("en", true), ("en-GB", true), ("EN_us", true), ("es", false), ("enm", false), ("", false)]
    {
        assert_eq!(Language::of_tag(tag) == Language::English, is_english, "{tag:?}");
    }
}

#[test]
fn money_is_said() {
    check("It costs $5.50.", "It costs 5 dollars and 50 cents.");
    check("$1, $1,200 and $0.99", "1 dollar, 1,200 dollars and 99 cents");
    check("$3.5 million or €20 or 20€", "3.5 million dollars or 20 euros or 20 euros");
    check("$2M, £5.00", "2 million dollars, 5 pounds");
    check("a loss of -$5", "a loss of minus 5 dollars");
}

#[test]
fn units_are_said_after_numbers_only() {
    check("50% of 20°C at 100 km/h", "50 percent of 20 degrees Celsius at 100 kilometers per hour");
    check("68 °F, 5km, 1 kg.", "68 degrees Fahrenheit, 5 kilometers, 1 kilogram.");
    check("10-20% in 5 min", "10 to 20 percent in 5 minutes");
    check("I am m and in 5 in", "I am m and in 5 in");
    check("the 1990s and 4K", "the 1990s and 4K");
    check("-5°C", "minus 5 degrees Celsius");
    check("3.5 GB, 16 GHz", "3.5 gigabytes, 16 gigahertz");
}

#[test]
fn times_and_dates_are_said() {
    check("at 3:30 pm.", "at 3 30 p.m.");
    check("at 10:30, 9:05 or 3:00", "at 10 30, 9 oh 5 or 3 o'clock");
    check("3:00 pm or 5pm or 7 AM", "3 p.m. or 5 p.m. or 7 a.m.");
    check("on 2024-05-06", "on May 6, 2024");
    check("a ratio of 3:1", "a ratio of 3 to 1");
    check("from 1914–1918", "from 1914 to 1918");
}

#[test]
fn figures_are_said() {
    check("1/2, 3/4, 1 1/2 and 5/7", "one half, 3 quarters, 1 and one half and 5 over 7");
    check("1½ cups", "1 and one half cups");
    check("2 + 2 = 4", "2 plus 2 equals 4");
    check("2+2=4 and 2*3 and 5 * 4", "2 plus 2 equals 4 and 2 times 3 and 5 times 4");
    check("5 - 3", "5 minus 3");
    check("-5 and +7 and ~20 and <3", "minus 5 and plus 7 and about 20 and less than 3");
    check("5 m² and x²", "5 square meters and x squared");
    check("call 555-1234", "call 555-1234");
    check("pi is 3.14, or 1,000.5", "pi is 3.14, or 1,000.5");
}

#[test]
fn signs_are_said() {
    check("R&D @ home & more", "R and D at home and more");
    check("#1 in C# and C++", "number 1 in C sharp and C plus plus");
    check("A -> B → C", "A to B to C");
    check("and/or TCP/IP", "and or TCP IP");
    check("e.g. this, i.e. that, etc.", "for example this, that is that, et cetera");
    check("No. 5 is alive. No. It is not.", "number 5 is alive. No. It is not.");
    check("Paris (in France) is big", "Paris, in France, is big");
    check("She said “don’t” — twice", "She said don't, twice");
    check("yes—no", "yes, no");
    check("U.S. Army, Dr. Who", "U.S. Army, Dr. Who");
}

#[test]
fn addresses_are_said() {
    check("See https://www.rust-lang.org/learn?x=1.", "See rust-lang dot org.");
    check("mail bob.h@example.com", "mail bob dot h at example dot com");
    check("open main.rs with v1.2.3", "open main dot rs with version 1 point 2 point 3");
    check("my_file and __init__", "my file and init");
}

#[test]
fn markup_goes() {
    check("**Bold** and *thin* and `code` and ~~gone~~", "Bold and thin and code and gone");
    check("## A heading", "A heading");
    check("- an item", "an item");
    check("- [x] a task", "a task");
    check("1. first", "1. first");
    check("[the page](https://example.com/a_b) and ![a cat](cat.png)", "the page and a cat");
    check("<b>strong</b> &amp; <br/> so", "strong and so");
    check("> quoted", "quoted");
    check("| a | b |", "a, b");
    check("---", "");
    check("|---|:--|", "");
    check("unfinished **bold and [link", "unfinished bold and link");
    check("a \\* star", "a * star");
}

#[test]
fn pictographs_go() {
    check("Hi 👋🏽 there 👨‍👩‍👧!", "Hi there!");
    check("😀", "");
    check("I ❤️ Rust ✨", "I Rust");
    check("🇩🇪 and ✔ and 5️⃣", "and and 5");
    check("café, naïve, 北京", "café, naïve, 北京");
    check("© Acme™", "Acme");
}

#[test]
fn another_language_keeps_its_signs() {
    let position = Position { line_start: true, ends_line: false };
    assert_eq!(speakable("- **50%** für 5 € 😀", position, Language::Other, &[]), "50% für 5 €");
}

#[test]
fn a_line_of_its_own_gets_a_full_stop() {
    let say = |text| speakable(text, Position { line_start: true, ends_line: true }, Language::English, &[]);
    assert_eq!(say("# Title"), "Title.");
    assert_eq!(say("- Really?"), "Really?");
}

#[test]
fn what_a_voice_reads_as_marks_stays_as_it_is() {
    let position = Position { line_start: true, ends_line: false };
    let marks = ["[laugh]".to_owned(), "<strong>".into(), "</strong>".into()];
    let text = "Well [laugh], a <strong>very</strong> <em>long</em> [link](https://a.b) [sigh].";
    let spoken = speakable(text, position, Language::English, &marks);
    assert_eq!(spoken, "Well [laugh], a <strong>very</strong> long link sigh.");
    assert_eq!(speakable(text, position, Language::English, &[]), "Well laugh, a very long link sigh.");
}
