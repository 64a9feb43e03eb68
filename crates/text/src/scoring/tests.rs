//! Pairs of texts that are said alike, pairs that are not, and properties.

use super::*;
use proptest::prelude::*;

/// Texts that are said alike.
#[track_caller]
fn same(texts: &[&str]) {
    for pair in texts.windows(2) {
        assert_eq!(words(pair[0]), words(pair[1]), "{:?} and {:?}", pair[0], pair[1]);
    }
}

/// Texts that are not.
#[track_caller]
fn other(one: &str, two: &str) {
    assert_ne!(words(one), words(two), "{one:?} and {two:?}");
}

#[track_caller]
fn reads(text: &str, expected: &str) {
    assert_eq!(words(text).join(" "), expected, "{text:?}");
}

#[test]
fn case_punctuation_accents_and_marks_are_not_heard() {
    same(&["Wait... what?", "wait, what", "\u{201c}Wait\u{201d} — what!"]);
    same(&["The café serves crème brûlée.", "the cafe serves creme brulee"]);
    same(&["It\u{2019}s OK.", "it's okay"]);
    same(&["'Why?' she asked.", "why, she asked"]);
    same(&["a well-known dog", "a well known dog"]);
    same(&["Rock & roll", "rock and roll"]);
}

#[test]
fn a_number_is_the_same_in_figures_and_in_words() {
    same(&["3 times 4 is 12", "three times four is twelve"]);
    same(&["123", "one hundred twenty three", "a hundred and twenty-three", "one twenty three", "1 2 3"]);
    same(&["2024", "twenty twenty-four", "two thousand twenty four", "two thousand and twenty-four", "2,024"]);
    same(&["1905", "nineteen oh five", "nineteen hundred and five"]);
    same(&["1,299", "1299", "twelve ninety-nine", "one thousand two hundred and ninety nine"]);
    same(&["in 1999", "in nineteen ninety-nine", "in 19 99"]);
    same(&["1,000 times", "a thousand times", "1000 times", "one thousand times"]);
    same(&["12,000", "twelve thousand", "12 thousand"]);
    same(&["100,000", "a hundred thousand", "one hundred thousand", "100 thousand"]);
    same(&["1001 nights", "a thousand and one nights"]);
    same(&["1500", "fifteen hundred", "one thousand five hundred", "1,500", "1.5 thousand"]);
    same(&["The 1990s", "the nineteen-nineties", "the 1990's"]);
    same(&["the '80s and 2000s", "the eighties and two thousands"]);
    same(&["Room 101", "room one oh one", "room a hundred and one"]);
    same(&["20/20 vision", "twenty twenty vision", "20 20 vision", "2020 vision"]);
    same(&["a 50/50 chance", "a 50-50 chance", "a fifty-fifty chance"]);
    same(&["24/7", "24-7", "twenty four seven"]);
    same(&["a 4x4 car", "a 4 by 4 car", "a four-by-four car"]);
    same(&["No. It is the No. 1 song.", "no it is the number one song", "no it is the #1 song"]);
}

#[test]
fn scales_multiply() {
    same(&["7,900,000,000", "7,900 million", "7.9 billion", "seven billion nine hundred million", "7.9bn"]);
    same(&["2.5 million", "two point five million", "2,500,000", "two million five hundred thousand"]);
    same(&["1,000,000", "a million", "1 million", "one million"]);
    same(&["0.5 million", "500,000", "five hundred thousand"]);
    same(&["1,234,567", "one million two hundred and thirty-four thousand five hundred sixty-seven"]);
    reads("7,900 million", "seven point nine billion");
    reads("250,000 and 250 million", "two hundred fifty thousand and two hundred fifty million");
    reads("a few hundred, several thousand", "a few hundred several thousand");
    reads("half a million", "half one million");
    same(&["100 and 5", "one hundred and five"]);
    reads("between two hundred and three hundred", "between two hundred and three hundred");
}

#[test]
fn ordinals() {
    same(&["8th", "eighth"]);
    same(&["the 21st century", "the twenty-first century"]);
    same(&["the 100th visit", "the hundredth visit", "the one hundredth visit"]);
    same(&["42nd Street", "forty-second street"]);
    same(&["101st", "a hundred and first", "one hundred and first", "one hundred first"]);
    same(&["She came 1st, he came 3rd.", "She came first. He came third."]);
    same(&["Henry VIII", "Henry the 8th", "Henry the Eighth"]);
    same(&["World War II", "World War 2", "world war two"]);
    same(&["Super Bowl LVIII", "Super Bowl 58", "super bowl fifty eight"]);
    same(&["a 20-second ad", "a twenty second ad"]);
}

#[test]
fn digits_that_are_dictated() {
    same(&["(212) 555-0123", "212 555 0123", "2125550123", "two one two, five five five, oh one two three"]);
    same(&["+1-800-555-0199", "plus 1 800 555 0199", "plus one eight hundred five five five oh one nine nine"]);
    same(&["415 867 53 09", "four one five eight six seven fifty three oh nine"]);
    same(&["3 8, 04", "three eight oh four", "3804", "38 04"]);
    same(&["206 814-03", "two oh six eight one four oh three"]);
    same(&["My PIN is 0042", "my pin is zero zero four two", "my pin is double oh four two"]);
    same(&["05", "oh five", "zero five"]);
    same(&["double five", "five five", "5 5"]);
    same(&["triple zero nine", "0009", "oh oh oh nine"]);
    same(&["Call 911", "call 9-1-1", "call nine one one"]);
    same(&["Flight BA2490", "flight BA 2490", "flight BA twenty-four ninety"]);
    same(&["The code is A7X9.", "the code is a 7 x 9", "the code is a seven x nine"]);
    same(&["221B", "two twenty one B"]);
    reads("Oh, never mind. Oh two things", "oh never mind zero two things");
    reads("take your time, oh well", "take your time oh well");
}

#[test]
fn a_long_row_of_the_letter_is_read() {
    let n = 30_000;
    assert_eq!(words(&"oh ".repeat(n)).len(), n);
    let row = words(&format!("{}five", "double oh ".repeat(n)));
    assert_eq!(row.len(), 2 * n + 1);
    assert_eq!((row[0].as_str(), row[2 * n].as_str()), ("zero", "five"));
}

#[test]
fn money() {
    same(&["$2.5 million", "2.5 million dollars", "two point five million dollars", "$2.5M", "$2,500,000"]);
    same(&["$5.50", "5 dollars and 50 cents", "five dollars fifty cents", "five dollars fifty", "5.50 dollars"]);
    same(&["£3.99", "£3 and 99 pence", "three pounds and ninety-nine pence", "three pounds ninety nine"]);
    same(&["50¢", "50 cents", "$.50", "$0.50", "fifty cents"]);
    same(&["$1,299", "1,299 dollars", "twelve hundred ninety-nine dollars"]);
    same(&["$1", "1 dollar", "one dollar"]);
    same(&["a $5 bill", "a five dollar bill"]);
    same(&["€20 or £17", "20 euros or 17 pounds", "20€ or 17£"]);
    same(&["$5-$10", "5 to $10", "$5 to $10", "five to ten dollars", "$5-10", "five dollars to ten dollars"]);
    same(&["$3bn", "$3 billion", "three billion dollars"]);
    same(&["-$5", "minus five dollars"]);
    same(&["two fifty", "250"]);
    reads("$5.00, $0.05, $1.01", "five dollars five cents one dollars one");
    reads("five dollars and fifty cents and a coffee", "five dollars fifty and a coffee");
}

#[test]
fn times_and_dates() {
    same(&["at 7 p.m. sharp", "at 7pm sharp", "at seven PM sharp", "at 7:00 p.m. sharp"]);
    same(&["9:30pm", "9.30 pm", "nine thirty pm", "9:30 P.M."]);
    same(&["06:05", "6:05", "six oh five"]);
    same(&["12:00", "12 o'clock", "twelve o'clock", "12:00 o'clock"]);
    same(&["the ratio is 3:1", "the ratio is three to one"]);
    same(&["May 6, 2024", "May 6th, 2024", "may sixth twenty twenty-four"]);
    same(&["Mon, Jan 3", "Monday, January 3", "Monday January third"]);
    same(&["9-5", "9 to 5", "nine to five"]);
    same(&["1914-1918", "1914 to 1918", "nineteen fourteen to nineteen eighteen"]);
    same(&["10 a.m. in the U.K.", "10 AM in the UK"]);
}

#[test]
fn decimals_fractions_and_percentages() {
    same(&["Pi is 3.14159", "pi is three point one four one five nine"]);
    same(&["0.5%", ".5 percent", "zero point five percent", "point five per cent"]);
    same(&["Version 2.0.1", "version two point oh point one"]);
    same(&["Python 3.12", "Python three point twelve", "python three point one two"]);
    same(&["½ cup", "1/2 cup", "one half cup"]);
    same(&["3/4 of it", "three-quarters of it"]);
    same(&["2½ hours", "2 1/2 hours", "two and a half hours", "two and one half hours"]);
    same(&["about 45%", "about 45 percent", "about forty-five percent"]);
    same(&["10-20%", "ten to twenty percent"]);
}

#[test]
fn units_and_signs() {
    same(&["3.5 kg", "3.5kg", "three point five kilograms"]);
    same(&["1 km", "one kilometer", "1 kilometre"]);
    same(&["20 m²", "20 square meters"]);
    same(&["800 sq ft", "800 square feet", "800 sq. ft."]);
    same(&["60 mph at most", "60 miles per hour at most"]);
    same(&["1.5 GB", "one point five gigabytes"]);
    same(&["-5°C", "minus 5 degrees Celsius", "minus five degrees celsius"]);
    same(&["212°F", "212 degrees Fahrenheit"]);
    same(&["180°", "180 degrees"]);
    same(&["5'10\" tall", "5 feet 10 tall", "five feet ten tall"]);
    same(&["a screen of 27\" is", "a screen of 27 inches is"]);
    same(&["1h 30min", "1 hour 30 minutes"]);
    same(&["2 + 2 = 4", "2+2=4", "two plus two equals four"]);
    same(&["3 × 4", "three times four"]);
    same(&["10 / 2 is 5", "10 divided by 2 is 5"]);
    same(&["x < 5 and y > 3", "x less than five and y greater than three"]);
    same(&["anna.b@example.org", "anna dot b at example dot org"]);
    same(&["@anna and #music", "at anna and hashtag music"]);
    same(&["and/or", "and or"]);
    reads("Step 7 M or 3 V", "step seven m or three v");
}

#[test]
fn abbreviations() {
    same(&["Cats vs. dogs", "cats vs dogs", "cats versus dogs"]);
    same(&["apples, etc. are here", "apples, et cetera are here"]);
    same(&["Dr. Smith", "doctor Smith"]);
    same(&["Mr. and Mrs. Jones", "mister and missus Jones", "Mr and Mrs Jones"]);
    same(&["St. Patrick lived on Main St.", "Saint Patrick lived on Main Street"]);
    same(&["1600 Pennsylvania Ave.", "1600 Pennsylvania Avenue"]);
    same(&["Mt. Everest", "Mount Everest"]);
    same(&["Martin Luther King Jr. once", "Martin Luther King Junior once"]);
    same(&["It is in Austin, TX.", "it is in Austin, Texas"]);
    same(&["Gov. Brown met Prof. Ray.", "Governor Brown met Professor Ray"]);
    same(&["the U.S. Army", "the US Army", "the U S army"]);
    same(&["FBI, USA, PDF", "F.B.I., U.S.A., P.D.F.", "F B I U S A P D F"]);
    same(&["DL 1437", "D L fourteen thirty seven", "DL1437"]);
}

#[test]
fn different_words_stay_different() {
    other("fifteen", "fifty");
    other("15", "50");
    other("2.5 million", "2.5 billion");
    other("2.5 million", "2 million");
    other("7,900 million", "7,900");
    other("7,900 million", "79 million");
    other("8", "8th");
    other("eight", "eighth");
    other("$5", "5");
    other("$5", "€5");
    other("$5.50", "$5.15");
    other("$5.50", "550");
    other("$5.50", "5.50");
    other("$5 and $10", "5 and 10 dollars");
    other("50 cents", "50 dollars");
    other("its", "hits");
    other("it's", "its");
    other("two", "to");
    other("2", "to");
    other("2", "too");
    other("four", "for");
    other("mail", "male");
    other("I am at home.", "I'm at home.");
    other("one, two", "12");
    other("one two", "twelve");
    other("five five", "fifty five");
    other("twenty three", "20 3");
    other("555 0123", "555 0124");
    other("1914", "1940");
    other("1,299", "1,290");
    other("3.5", "35");
    other("3.5", "3.50");
    other("0.5", "5");
    other("0.5", "0.05");
    other("2.5 hours", "two and a half hours");
    other("-5", "5");
    other("5%", "5");
    other("7 a.m.", "7 p.m.");
    other("7 p.m.", "7");
    other("9:30", "9:13");
    other("12:00", "12");
    other("the 1990s", "the 1990");
    other("the 80s", "the 1980s");
    other("May 5th", "May 6th");
    other("5/6/2024", "June 5, 2024");
    other("Henry VIII", "Henry VII");
    other("Henry the 8th", "Henry 8");
    other("Malcolm X", "Malcolm the tenth");
    other("the part I play", "the part one play");
    other("the U.S. Army", "the us army");
    other("NASA", "N.A.S.A.");
    other("C.A.T.", "cat");
    other("e.g. this", "for example this");
    other("1.5 GB", "1.5 gigabits");
    other("5 km", "5 miles");
    other("St. Patrick", "Street Patrick");
    other("Dr. Smith", "Mr. Smith");
    other("It is apt.", "It is apartment.");
    other("Acme Inc.", "Acme Incorporated");
    other("M R", "Mr");
    other("No. 5 minutes.", "Number five minutes.");
    other("a few hundred", "a few 100");
    other("a part", "apart");
    other("ham", "h am");
    other("example.com", "example com");
    other("a hundred", "hundreds");
    other("one", "a");
    other("hundred", "thousand");
    other("1,000,000", "1,000,000,000");
    other("first", "1");
    other("second", "two");
}

#[test]
fn one_wrong_word_counts_once() {
    let n = |said: &str, heard: &str| {
        let said = words(said);
        let heard = words(heard);
        assert_eq!(said.len(), heard.len(), "{said:?} {heard:?}");
        said.iter().zip(&heard).filter(|(said, heard)| said != heard).count()
    };
    assert_eq!(n("$2.5 million", "$2.5 billion"), 1);
    assert_eq!(n("1,299", "1,290"), 1);
    assert_eq!(n("fifteen people", "fifty people"), 1);
    assert_eq!(n("call 212 555 0123", "call 2125550124"), 1);
    assert_eq!(n("the 21st century", "the 22nd century"), 1);
    assert_eq!(n("July 4, 1976", "July 5th, 1976"), 1);
}

#[test]
fn any_text_is_read() {
    reads("", "");
    reads("... ?! — 🎉", "");
    reads("$ % € °", "dollars percent euros degrees");
    reads("今天 3 ที่นี่", "今天 three ทน");
    reads(&"9".repeat(26), &["nine"; 26].join(" "));
    words("nine nine trillion a thousand trillion ninety nine thousand trillion");
}

/// Whether the words of a text, joined, have the same words.
fn is_settled(text: &str) -> bool {
    let once = words(text);
    once == words(&once.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_words_of_words_are_the_same(text in "[0-9a-zA-Z.,:$%£¢°½²/'\"@#&+=x -]{0,30}") {
        prop_assert!(is_settled(&text), "{:?} {:?}", words(&text), words(&words(&text).join(" ")));
    }

    #[test]
    fn the_words_of_any_text_are_the_same(text in "\\PC{0,30}") {
        prop_assert!(is_settled(&text), "{:?} {:?}", words(&text), words(&words(&text).join(" ")));
    }

    #[test]
    fn a_figure_is_its_name_and_no_other(n in 0_u64..20_000_000, m in 0_u64..20_000_000) {
        let grouped = |n: u64| {
            let digits = n.to_string();
            let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
            String::from_utf8_lossy(&groups.join(&b","[..])).into_owned()
        };
        prop_assert_eq!(words(&grouped(n)), words(&numbers::cardinal(n).join(" ")));
        prop_assert_eq!(words(&format!("{}th", n)), words(&numbers::ordinal(n).join(" ")));
        prop_assert_ne!(words(&format!("{}th", n)), words(&grouped(n)));
        prop_assert_eq!(words(&grouped(n)) == words(&grouped(m)), n == m);
        prop_assert_eq!(words(&format!("${}", grouped(n))), words(&format!("{} dollars", grouped(n))));
    }

    #[test]
    fn the_words_of_numbers_are_the_same(
        said in prop::collection::vec(
            prop::sample::select(&[
                "zero", "oh", "one", "two", "five", "nine", "ten", "twelve", "fifteen", "twenty", "fifty", "ninety",
                "hundred", "thousand", "million", "billion", "trillion", "and", "a", "point", "double", "triple",
                "first", "second", "fifth", "twentieth", "hundredth", "thousandth", "millionth", "half", "quarter",
                "dollar", "dollars", "cents", "pounds", "pence", "to", "percent", "per", "cent", "may", "may 5", "0",
                "5", "20", "100", "250", "1,000", "2,500,000", "7.5", "$5", "$5.50", "5-10", "1/2", "8th", "1990s",
                "u", "s", "d", "k", "i", "m", "o'clock", "x",
            ][..]),
            0..12,
        )
    ) {
        let text = said.join(" ");
        prop_assert!(is_settled(&text), "{:?} {:?}", words(&text), words(&words(&text).join(" ")));
    }
}
