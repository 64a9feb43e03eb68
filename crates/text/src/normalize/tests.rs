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
        assert_eq!(!matches!(Language::of_tag(tag), Language::Other(_)), is_english, "{tag:?}");
    }
}

#[test]
fn money_is_said() {
    check("It costs $5.50.", "It costs 5 dollars and 50 cents.");
    check("$1, $1,200 and $0.99", "1 dollar, 1,200 dollars and 99 cents");
    check("$3.5 million or €20 or 20€", "3.5 million dollars or 20 euros or 20 euros");
    check("$2M, £5.00", "2 million dollars, 5 pounds");
    check("CA$20, AU$5.50, C$3 or A$4", "20 dollars, 5 dollars and 50 cents, 3 dollars or 4 dollars");
    check("a loss of -$5", "a loss of minus 5 dollars");
}

#[test]
fn what_a_recognizer_heard_wrong_is_said() {
    check("10 / 2 is 5, 9 ÷ 3 is 3.", "10 divided by 2 is 5, 9 divided by 3 is 3.");
    check("open 9-5, the score was 3-2", "open 9 to 5, the score was 3 to 2");
    check("My PIN is 0042, and 0.5 or 0 is none.", "My PIN is 0 0 4 2, and 0.5 or 0 is none.");
    check("Call me on Mon, Jan 3 at noon.", "Call me on Monday, January 3 at noon.");
    check("Sat, August 5", "Saturday, August 5");
    check("We sat, Jane and I.", "We sat, Jane and I.");
}

#[test]
fn units_are_said_after_numbers_only() {
    check("50% of 20°C at 100 km/h", "50 percent of 20 degrees Celsius at 100 kilometers per hour");
    check("68 °F, 5km, 1 kg.", "68 degrees Fahrenheit, 5 kilometers, 1 kilogram.");
    check("10-20% in 5 min", "10 to 20 percent in 5 minutes");
    check("I am m and in 5 in", "I am m and in 5 in");
    check("20 W 34th St, 7 W. Main Street", "20 West 34th St, 7 West Main Street");
    check("a 60 W LED, 20 W more", "a 60 watts LED, 20 watts more");
    check("the 1990s and 4K", "the 1990s and 4K");
    check("-5°C", "minus 5 degrees Celsius");
    check("3.5 GB, 16 GHz", "3.5 gigabytes, 16 gigahertz");
}

#[test]
fn times_and_dates_are_said() {
    check("at 3:30 pm.", "at 3 30 p.m.");
    check("at 10:30, 9:05 or 3:00", "at 10 30, 9 oh 5 or 3 o'clock");
    check("3:00 pm or 5pm or 7 AM", "3 p.m. or 5 p.m. or 7 a.m.");
    check("on 2024-05-06", "on May 6th, 2024");
    check("a ratio of 3:1", "a ratio of 3 to 1");
    check("from 1914–1918", "from 1914 to 1918");
}

#[test]
fn figures_are_said() {
    check("1/2, 3/4, 1 1/2 and 5/7", "one half, 3 quarters, 1 and one half and 5 sevenths");
    check("the 2023/24 season, 2023/25", "the 2023 24 season, 2023 over 25");
    check("a 1/2-inch bolt", "a one half inch bolt");
    check("1½ cups", "1 and one half cups");
    check("2 + 2 = 4", "2 plus 2 equals 4");
    check("2+2=4 and 2*3 and 5 * 4", "2 plus 2 equals 4 and 2 times 3 and 5 times 4");
    check("5 - 3", "5 minus 3");
    check("-5 and +7 and ~20 and <3", "minus 5 and plus 7 and about 20 and less than 3");
    check("5 m² and x²", "5 square meters and x squared");
    check("call 555-1234", "call 5 5 5, 1 2 3 4");
    check("pi is 3.14, or 1,000.5", "pi is 3.14, or 1,000.5");
}

#[test]
fn ranges_are_said_whatever_their_dash() {
    check("It takes 10 – 20 minutes, from 1914 – 1918.", "It takes 10 to 20 minutes, from 1914 to 1918.");
    check("on a scale of 0-10, 0.5-1.5 or 0-100%", "on a scale of 0 to 10, 0.5 to 1.5 or 0 to 100 percent");
    check("Open 10 - 12 weekdays, 9 - 11 weekends", "Open 10 to 12 weekdays, 9 to 11 weekends");
    check("50%-60%", "50 percent to 60 percent");
    check("20°C–25°C, 5kg-10kg", "20 degrees Celsius to 25 degrees Celsius, 5 kilograms to 10 kilograms");
    check("5-10 km, 5 - 10 km, 3 - 4 cups", "5 to 10 kilometers, 5 to 10 kilometers, 3 to 4 cups");
    check("$5 – $10, 10% - 20% and 1939 - 1945", "5 dollars to 10 dollars, 10 percent to 20 percent and 1939 to 1945");
    check("9 a.m. – 5 p.m., 9 - 5 p.m., 10:30 - 11:00", "9 a.m. to 5 p.m., 9 to 5 p.m., 10 30 to 11 o'clock");
    check("We left at 9 a.m. – 5 people stayed.", "We left at 9 a.m. 5 people stayed.");
    check("What is 3 - 5? 5 – 3 is 2, 3 – 5 = −2", "What is 3 minus 5? 5 minus 3 is 2, 3 minus 5 equals minus 2");
    check("He is 5 – I am 7, code 07-12", "He is 5, I am 7, code 07-12");
}

#[test]
fn a_dash_in_a_calculation_is_minus() {
    check("3 - 5 equals -2, 10 - 20 minus 5", "3 minus 5 equals minus 2, 10 minus 20 minus 5");
    check("3 - 5 times 2 and 1200 - 1500 = -300", "3 minus 5 times 2 and 1200 minus 1500 equals minus 300");
    check("What is 5 – 7? 5 – 7 is −2.", "What is 5 minus 7? 5 minus 7 is minus 2.");
    check("It rains 3 - 5 times a week, 5 – 7 is usual.", "It rains 3 to 5 times a week, 5 to 7 is usual.");
    check("It costs 10 – 20 plus tax.", "It costs 10 to 20 plus tax.");
    check("$10 – $20 plus tip, 18 – 25 plus a guest", "10 dollars to 20 dollars plus tip, 18 to 25 plus a guest");
    check("10 – 20 minus fees or 3 – 5 plus 2", "10 to 20 minus fees or 3 minus 5 plus 2");
}

#[test]
fn a_range_at_the_end_of_a_question_stays_a_range() {
    check("Are you free 2 – 4? Are you aged 18 – 25?", "Are you free 2 to 4? Are you aged 18 to 25?");
    check("Did he reign 1990 – 1995? Or 1990 - 1995?", "Did he reign 1990 to 1995? Or 1990 to 1995?");
    check("So his reign is 1990 – 1995?", "So his reign is 1990 to 1995?");
    check("What's 5 – 7? What’s 5 – 7? Calculate 5 – 7?", "What's 5 minus 7? What's 5 minus 7? Calculate 5 minus 7?");
}

#[test]
fn a_dash_behind_a_label_is_a_pause() {
    check("Day 1 – 3 km run", "Day 1, 3 kilometers run");
    check("Question 3 – 10 points", "Question 3, 10 points");
    check("Option 1 - 20 minutes, in step 2 – 9 a.m.", "Option 1, 20 minutes, in step 2, 9 a.m.");
    check("Walk every day 10 – 20 minutes.", "Walk every day 10 to 20 minutes.");
    check("Chapter 1 – 1984", "Chapter 1, 1984");
    check("Part 2 – 2001: the journey", "Part 2, 2001: the journey");
    check("Option 1 – $20, part 3 – 2 eggs", "Option 1, 20 dollars, part 3, 2 eggs");
}

#[test]
fn a_range_of_labels_is_said() {
    check("Week 1 – 2: learn the basics", "Week 1 to 2: learn the basics");
    check("Day 1 – 3: Rome. Day 4 - 6: Pisa", "Day 1 to 3: Rome. Day 4 to 6: Pisa");
    check("Now repeat step 2 – 4", "Now repeat step 2 to 4");
}

#[test]
fn dates_are_said_in_the_order_of_the_language() {
    check("On 5/6/2024 it rained.", "On May 6th, 2024 it rained.");
    check(
        "12/25/1999, 06.05.2024, 1/2/99 and 2024/05/06",
        "December 25th, 1999, May 6th, 2024, January 2nd, 1999 and May 6th, 2024",
    );
    check("due 12/25 or on 3/4.", "due December 25th or on March 4th.");
    check("25/12/1999 has its day first", "December 25th, 1999 has its day first");
    check("on Jan. 5 and on Mon., Sept. 3", "on January 5 and on Monday, September 3");
    check("The sun. Sat. down", "The sun. Sat. down");
    let position = Position { line_start: true, ends_line: false };
    let british = |text| speakable(text, position, Language::of_tag("en-GB"), &[]);
    assert_eq!(british("On 5/6/2024 or 06.05.2024."), "On the 5th of June 2024 or the 6th of May 2024.");
    assert_eq!(british("12/25/1999"), "the 25th of December 1999");
    assert_eq!(british("by the 25/12/2024."), "by the 25th of December 2024.");
}

#[test]
fn times_are_said_however_they_are_written() {
    check("At 9.30pm we met.", "At 9 30 p.m. we met.");
    check("at 9.30 pm or 9.05 a.m., not 9.30", "at 9 30 p.m. or 9 oh 5 a.m., not 9.30");
    check("9am-5pm, 10:30-11:00 and 9-5pm", "9 a.m. to 5 p.m., 10 30 to 11 o'clock and 9 to 5 p.m.");
    check("Mon-Fri", "Monday to Friday");
    check("Jan 3-5 or Dec 25–27", "January 3 to 5 or December 25 to 27");
    check("Ask Jan 555-1234", "Ask Jan 5 5 5, 1 2 3 4");
    check(
        "Mon – Fri, 9 - 5 p.m., Sat. - Sun. off (Tue – Thu).",
        "Monday to Friday, 9 to 5 p.m., Saturday to Sunday off, Tuesday to Thursday.",
    );
    check("We sat – Sun or not.", "We sat, Sun or not.");
    check("10:30:00, 1:00:00 and 1:00:00 PM", "10 30, 1 o'clock and 1 p.m.");
    check("10:30:01 or 10:30:15 or 1:2:3", "10 30 and 1 second or 10 30 and 15 seconds or 1 to 2 to 3");
    check(
        "09:30 AM, 09 AM, 09am–05pm, 08-10am and 00:30",
        "9 30 a.m., 9 a.m., 9 a.m. to 5 p.m., 8 to 10 a.m. and 0 30",
    );
    check("9 a.m.-5 p.m. and 9:30 a.m.–5:00 p.m.", "9 a.m. to 5 p.m. and 9 30 a.m. to 5 p.m.");
}

#[test]
fn lengths_and_areas_are_said() {
    check("He is 5'10\" tall.", "He is 5 feet 10 tall.");
    check("5' 10\", 6’2” and 1'1", "5 feet 10, 6 feet 2 and 1 foot 1");
    check("a 27\" screen, 5″ and 6′", "a 27 inches screen, 5 inches and 6 feet");
    check("He said \"I am 27\" then", "He said I am 27 then");
    check("a 27\" or a 32\" screen", "a 27 inches or a 32 inches screen");
    check("He said \"It is 27\", of a 32\" screen", "He said It is 27, of a 32 inches screen");
    check("It is 20 sq ft now.", "It is 20 square feet now.");
    check("20 sq. ft., 1 sq mi, 5 cu ft and 8 fl oz", "20 square feet, 1 square mile, 5 cubic feet and 8 fluid ounces");
    check("a 1920x1080 screen, 60 km/h, 5in", "a 1920 by 1080 screen, 60 kilometers per hour, 5 inches");
    check("$10/month and 60 miles/hour", "10 dollars per month and 60 miles per hour");
}

#[test]
fn small_money_and_ranges_of_money_are_said() {
    check("It costs 50¢ today.", "It costs 50 cents today.");
    check("It costs $.50 or 1¢.", "It costs 50 cents or 1 cent.");
    check("We pay $5-$10 today.", "We pay 5 to 10 dollars today.");
    check(
        "$5–10, 5-10 €, $1.50-$2 and $1M-$3M",
        "5 to 10 dollars, 5 to 10 euros, 1 dollar and 50 cents to 2 dollars and 1 million to 3 million dollars",
    );
    check(
        "$3-5 million, €1.5–2 billion or $3–$5 million.",
        "3 to 5 million dollars, 1.5 to 2 billion euros or 3 to 5 million dollars.",
    );
    check("5,50 € and US$20 and 20 USD", "5 euros and 50 cents and 20 dollars and 20 US dollars");
}

#[test]
fn telephone_numbers_are_said_digit_by_digit() {
    check("Call 911 now.", "Call 9 1 1 now.");
    check("a 911 operator, a Porsche 911 and 9/11", "a 9 1 1 operator, a Porsche 911 and nine eleven");
    check("+1-800-555-0199", "plus 1, 8 0 0, 5 5 5, 0 1 9 9");
    check(
        "(800) 555-0199, 800.555.0199 or 1-800-FLOWERS.",
        "8 0 0, 5 5 5, 0 1 9 9, 8 0 0, 5 5 5, 0 1 9 9 or 1, 8 0 0, FLOWERS.",
    );
    check("+49 30 1234567, please", "plus 4 9, 3 0, 1 2 3 4 5 6 7, please");
    check("+7 and +3.5 and 3.456", "plus 7 and plus 3.5 and 3.456");
    check("my PIN 4821 and ZIP 90210", "my PIN 4 8 2 1 and ZIP 9 0 2 1 0");
}

#[test]
fn counts_and_ranges_are_no_telephone_numbers() {
    check("It weighs 500-1000 grams.", "It weighs 500 to 1000 grams.");
    check("Write 500–1000 words, or 365–1460.", "Write 500 to 1000 words, or 365 to 1460.");
    check("640-1280 pixels, between 250-1500", "640 to 1280 pixels, between 250 to 1500");
    check("call 800-1000 or 555-1230", "call 8 0 0, 1 0 0 0 or 5 5 5, 1 2 3 0");
    check("He called 500-1000 people.", "He called 500 to 1000 people.");
    check("Reach us at 250-4500, number 300–1500.", "Reach us at 2 5 0, 4 5 0 0, number 3 0 0, 1 5 0 0.");
    check("My number is 555–1234, the limit is 500–1000.", "My number is 5 5 5, 1 2 3 4, the limit is 500 to 1000.");
    check("It flies at 500-1000 feet.", "It flies at 500 to 1000 feet.");
    check("I called 15 restaurants, then text 20 friends.", "I called 15 restaurants, then text 20 friends.");
    check("He phoned 150 people and rang 12 times", "He phoned 150 people and rang 12 times");
    check("Call 12345, operators are waiting.", "Call 1 2 3 4 5, operators are waiting.");
    check("Call 311 weekdays from 8 to 5", "Call 3 1 1 weekdays from 8 to 5");
    check("call 311 weekends", "call 3 1 1 weekends");
    check("Call 555-1234 weekdays.", "Call 5 5 5, 1 2 3 4 weekdays.");
    check("Turnout is estimated at 500–1000.", "Turnout is estimated at 500 to 1000.");
    check("Prices start at 100–1000, the range is 365–1460", "Prices start at 100 to 1000, the range is 365 to 1460");
    check("Reach him at 300–1500, the office at 555–1234", "Reach him at 3 0 0, 1 5 0 0, the office at 5 5 5, 1 2 3 4");
    check(
        "Call at 500–1000, the number to call is 555–1234",
        "Call at 5 0 0, 1 0 0 0, the number to call is 5 5 5, 1 2 3 4",
    );
    check("dial 15, text 50409 to vote, code 12 works", "dial 1 5, text 5 0 4 0 9 to vote, code 1 2 works");
}

#[test]
fn roman_numerals_are_said() {
    check("Henry VIII and Louis XIV's wars", "Henry the 8th and Louis the 14th's wars");
    check("World War II, Super Bowl LVIII, Chapter IV", "World War 2, Super Bowl 58, Chapter 4");
    check("Queen Elizabeth I was old. Elizabeth I think so.", "Queen Elizabeth the 1st was old. Elizabeth I think so.");
    check("the XIX century, LVIII, MCMXCIV", "the 19th century, 58, 1994");
    check("World War I was long. Type I, phase I trials", "World War 1 was long. Type 1, phase 1 trials");
    check("a phase I study, stage I (early) or type I", "a phase 1 study, stage 1, early, or type 1");
    check("the book I (finally) read", "the book I, finally, read");
    check("section I (definitions), class I (low risk) or so", "section 1, definitions, class 1, low risk, or so");
    check("grade I (mild), chapter I (page 3) or so", "grade 1, mild, chapter 1, page 3, or so");
    check("the book I (just) read, the section I (also) saw", "the book I, just, read, the section I, also, saw");
    check("It is a level I study, as level I studies are.", "It is a level 1 study, as level 1 studies are.");
    check("in stage I. Elizabeth I, the queen", "in stage 1. Elizabeth the 1st, the queen");
    check("The IV drip, An IV line and Your IV. Rocky IV", "The IV drip, An IV line and Your IV. Rocky 4");
    check("a CD, an IV drip, the MIX, size XL, I, V and IXI", "a CD, an IV drip, the MIX, size XL, I, V and IXI");
}

#[test]
fn single_letters_that_count_nothing_stay() {
    for text in [
        "The book I read was good, the war I saw was not.",
        "What is the level I study at?",
        "Medicare Part C and Part D, Class L and Type M",
        "John D. Rockefeller, George C. Scott and Malcolm X",
    ] {
        check(text, text);
    }
}

#[test]
fn states_are_said_behind_places() {
    check("It is in Austin, TX.", "It is in Austin, Texas.");
    check("In Austin, TX. We left Reno, NV, at noon.", "In Austin, Texas. We left Reno, Nevada, at noon.");
    check("Columbus, OH, or Tulsa, OK 74101", "Columbus, OH, or Tulsa, Oklahoma 74101");
    check("Well, OK. John Smith, MD, and VR, CA", "Well, OK. John Smith, MD, and VR, CA");
    check("so, TX and Austin TX", "so, TX and Austin TX");
}

#[test]
fn titles_are_said() {
    check("The Jr. Miller spoke.", "The Junior Miller spoke.");
    check("Martin Luther King Jr. was here", "Martin Luther King Junior was here");
    check("Mt. Everest, St. John and Main St.", "Mount Everest, Saint John and Main Street.");
    check("In St. Louis, at 9 Main St. Paul sat.", "In Saint Louis, at 9 Main Street. Paul sat.");
    for word in ["At", "Downtown", "East", "From", "Near", "On", "Visit"] {
        check(&format!("{word} St. Louis’s arch"), &format!("{word} Saint Louis's arch"));
    }
    check("Near St. Peter, happy St. Patrick's Day", "Near Saint Peter, happy Saint Patrick's Day");
    check("Happy St. Patrick's Day", "Happy Saint Patrick's Day");
    check("The shop is at 12 Main St. It's open until nine.", "The shop is at 12 Main Street. It's open until nine.");
    check(
        "He is on 5th St. That’s near. Near Main St. Let's go",
        "He is on 5th Street. That's near. Near Main Street. Let's go",
    );
    check("Acme Inc. is in 5th Ave. now", "Acme Incorporated is in 5th Avenue now");
    check("See p. 5, Fig. 3 and Vol. 2.", "See page 5, figure 3 and volume 2.");
    check("Gen. Lee met Prof. Ray.", "General Lee met Professor Ray.");
}

#[test]
fn words_in_angle_brackets_are_said() {
    check("Type <Enter> and press <Ctrl+C>.", "Type Enter and press control C.");
    check("Is a<b and c>d true?", "Is a less than b and c greater than d true?");
    check("x > 5, a Vec<String> and <your name>", "x greater than 5, a Vec String and your name");
    check("<a href=\"https://a.b\">the link</a>, <br/>and <!-- hidden --> shown", "the link, and shown");
    check("Press Alt+F4 or Cmd-Q", "Press alt F4 or command Q");
    check(
        "a win-win situation, a Win-Win-Win and Win+Shift+S",
        "a win-win situation, a Win-Win-Win and windows shift S",
    );
}

#[test]
fn addresses_are_spelled_as_far_as_they_must_be() {
    check("write to j.smith+news@my-mail.co.uk", "write to j dot smith plus news at my dash mail dot co dot uk");
    check(
        "see example.com/docs/start, or <me@example.com>",
        "see example dot com slash docs slash start, or me at example dot com",
    );
}

#[test]
fn numbers_of_lists_are_said_without_their_marks() {
    for text in ["1. Apples", "1) Apples", "1: Apples", "**1.** Apples"] {
        check(text, "1, Apples");
    }
    check("2. **Pears**: sweet", "2, Pears: sweet");
    check("1.5 apples at 1:30", "1.5 apples at 1 30");
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
    check("See https://en.wikipedia.org/wiki/New_York_City.", "See en dot wikipedia dot org.");
    check("(www.a.com/b_c_d) https://a.org/Rust_(a_b)! _www.a.com_", "a dot com, a dot org! a dot com");
    check("mail bob.h@example.com", "mail bob dot h at example dot com");
    check("open main.rs with v1.2.3", "open main dot rs with version 1 point 2 point 3");
    check("my_file and __init__", "my file and init");
    check("file2.5.txt and 1.2.3-beta", "file2.5 dot txt and 1 point 2 point 3-beta");
}

#[test]
fn a_dot_inside_a_word_is_no_address() {
    for text in [
        "a 6.7-inch display, a 2.5-hour talk and GPT-3.5",
        "a U.S.-based company and U.K.–based people",
        "a Ph.D. in physics, an M.Sc. and LL.B.-level work",
        "J.Smith and J.R.Smith are here",
    ] {
        check(text, &text.replace('–', "-"));
    }
    check("1.5M people, 3.2B, 2.5k and 1.5-2M", "1.5 million people, 3.2 billion, 2.5 thousand and 1.5 to 2 million");
}

#[test]
fn markup_goes() {
    check("**Bold** and *thin* and `code` and ~~gone~~", "Bold and thin and code and gone");
    check("## A heading", "A heading");
    check("## A heading ##", "A heading");
    check("## Learn C#", "Learn C sharp");
    check("- an item", "an item");
    check("- [x] a task", "a task");
    check("1. first", "1, first");
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
    assert_eq!(speakable("- **50%** für 5 € 😀", position, Language::of_tag("de"), &[]), "50% für 5 €");
}

#[test]
fn an_ordinal_at_the_start_of_a_line_keeps_its_dot() {
    let position = Position { line_start: true, ends_line: false };
    let say = |text, tag| speakable(text, position, Language::of_tag(tag), &[]);
    for (text, tag) in [
        ("3. Oktober: Tag der Deutschen Einheit", "de"),
        ("1. FC Köln hat gewonnen.", "de"),
        ("3. Platz: Anna", "de"),
        ("2. Weltkrieg", "de"),
        ("2. Bundesliga", "de"),
        ("1. Advent", "de"),
        ("20. Jahrhundert", "de"),
        ("2. Stock", "de"),
        ("3. Okt.: Zahnarzt", "de"),
        ("1. und 2. Mai: geschlossen", "de"),
        ("3. maja jest święto", "pl"),
        ("28. října slavíme", "cs"),
        ("17. maj er en festdag", "nb"),
        ("6. joulukuuta", "fi"),
    ] {
        assert_eq!(say(text, tag), text);
    }
    assert_eq!(say("**3. Oktober** und danach", "de"), "3. Oktober und danach");
    assert_eq!(say("1) Äpfel", "de"), "1, Äpfel");
    assert_eq!(say("**1.** Äpfel", "de"), "1, Äpfel");
    assert_eq!(say("1. Pommes", "fr"), "1, Pommes");
    assert_eq!(say("1. Öffne die App", "de"), "1, Öffne die App");
    assert_eq!(say("1. die App öffnen", "de"), "1, die App öffnen");
    assert_eq!(say("1. Jan anrufen", "de"), "1, Jan anrufen");
    assert_eq!(say("2.  **Tippe** auf Start", "de"), "2, Tippe auf Start");
    assert_eq!(say("1. Avaa sovellus", "fi"), "1, Avaa sovellus");
    assert_eq!(say("1. öppna appen", "sv"), "1, öppna appen");
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
    assert_eq!(speakable("[laugh] 😀 [laugh]!", position, Language::English, &marks), "[laugh] [laugh]");
    assert_eq!(speakable("😀 \u{e000}", position, Language::English, &marks), "");
}
