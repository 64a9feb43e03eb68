//! Calculations said or written in a row: `23 times 7`, `half of ninety`, `(2+3)*4`, `two plus two then times three`.
//!
//! A recursive descent over words; times binds before plus, as in school. Commands (`add five to seven`) are in
//! `sums.rs`.

use super::numbers::{self, LENIENT};
use super::query::one_of;
use super::value::Value;

/// A calculation found in some words.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expression {
    pub value: Value,
    /// As a voice says it back.
    pub text: String,
    /// The first word that is not of it.
    pub end: usize,
    /// How many operations there are; a number alone has none.
    pub n_steps: usize,
}

impl Expression {
    fn number(value: f64, end: usize) -> Self {
        let value = Value::new(value);
        Self { value, text: value.say().0, end, n_steps: 0 }
    }

    /// This and another one joined by an operator.
    fn joined(self, other: Self, word: &str, value: Value) -> Self {
        let text = format!("{} {word} {}", self.text, other.text);
        Self { value, text, end: other.end, n_steps: self.n_steps + other.n_steps + 1 }
    }

    /// What a function makes of it.
    fn applied(self, text: String, end: usize, value: Value) -> Self {
        Self { value, text, end, n_steps: self.n_steps + 1 }
    }
}

/// Reads the longest calculation at the beginning of `words`. `that` is what "that" means, the last result.
pub(super) fn read(words: &[String], that: Option<Value>) -> Option<Expression> {
    let reader = Reader { words, that };
    let mut left = reader.sum(0)?;
    // "Then" closes what was said before: two plus two, then times three is twelve.
    while let Some(n) = reader.at(left.end, &["then|and|all", "and then", "and then you"]) {
        let start = Expression { end: left.end + n, ..left.clone() };
        match reader.go_on(start) {
            Some(next) if next.n_steps > left.n_steps => left = next,
            _ => break,
        }
    }
    Some(left)
}

/// Goes on from a value that is known: `times two`, `squared`, `divided by three plus one`.
pub(super) fn go_on(words: &[String], value: Value) -> Option<Expression> {
    let start = Expression { value, text: value.say().0, end: 0, n_steps: 0 };
    let reader = Reader { words, that: Some(value) };
    reader.go_on(start).filter(|expression| expression.n_steps > 0)
}

struct Reader<'a> {
    words: &'a [String],
    that: Option<Value>,
}

type Function = fn(Value) -> Value;

/// An operator: how many words, how it is said back, and what it does.
type Operator = (usize, &'static str, fn(Value, Value) -> Value);

const PLUS: &[&str] = &["+", "plus|pluss|plush|add|more", "added to", "and add", "increased by", "and plus"];
const MINUS: &[&str] = &[
    "-",
    "minus|subtract|less|takeaway",
    "take|taking away",
    "and subtract|minus",
    "mine us",
    "decreased|reduced by",
    "and take away",
];
const OVER: &[&str] = &[
    "/",
    "over|divided",
    "divided|divide|dividing|split by|bye|buy|with|into|among",
    "and divide|divided by",
    "and divide it|that by",
];
const TIMES: &[&str] = &[
    "*",
    "times|time|x|by|bye|buy|into|tines|multiplied|multiply",
    "multiplied|multiply|multiplying|times by|bye|buy|with",
    "and times|multiply",
    "and multiply|multiplied by",
    "and multiply it|that by",
    "lots|groups of",
];
const POWER: &[&str] = &[
    "^",
    "* *",
    "to the power of",
    "to the power",
    "to power of",
    "to power",
    "raised to",
    "raised to the power of",
    "raised to the power",
    "power of",
    "power",
    "to the of",
];

impl Reader<'_> {
    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// How many words the longest of the patterns that stand at a place has.
    fn at(&self, at: usize, patterns: &[&str]) -> Option<usize> {
        let fits = |pattern: &&&str| pattern.split(' ').enumerate().all(|(i, part)| one_of(self.word(at + i), part));
        patterns.iter().filter(fits).map(|pattern| pattern.split(' ').count()).max()
    }

    fn go_on(&self, start: Expression) -> Option<Expression> {
        let start = self.powers(start);
        Some(self.sum_from(self.product_from(start)))
    }

    fn sum(&self, at: usize) -> Option<Expression> {
        let first = self.product(at)?;
        Some(self.sum_from(first))
    }

    fn sum_from(&self, mut left: Expression) -> Expression {
        while let Some((n, word, apply)) = self.plus_or_minus(left.end) {
            let Some(right) = self.product(left.end + n) else { break };
            // A hundred plus ten percent is a hundred and ten.
            let percent = right.n_steps == 1 && right.text.ends_with(" percent");
            let share = if percent { left.value.times(right.value) } else { right.value };
            let value = apply(left.value, share);
            left = left.joined(right, word, value);
        }
        left
    }

    fn product(&self, at: usize) -> Option<Expression> {
        let first = self.factor(at)?;
        Some(self.product_from(first))
    }

    fn product_from(&self, mut left: Expression) -> Expression {
        while let Some((n, word, apply)) = self.times_or_over(left.end) {
            let Some(right) = self.factor(left.end + n) else { break };
            let value = apply(left.value, right.value);
            left = left.joined(right, word, value);
        }
        left
    }

    fn plus_or_minus(&self, at: usize) -> Option<Operator> {
        if let Some(n) = self.at(at, PLUS) {
            return Some((n, "plus", Value::plus));
        }
        self.at(at, MINUS).map(|n| (n, "minus", Value::minus as fn(Value, Value) -> Value))
    }

    fn times_or_over(&self, at: usize) -> Option<Operator> {
        if let Some(n) = self.at(at, OVER) {
            return Some((n, "divided by", Value::over));
        }
        if let Some(n) = self.at(at, &["mod|modulo|modulus"]) {
            return Some((n, "modulo", Value::modulo));
        }
        let power = self.at(at, &["* *"]).is_some();
        self.at(at, TIMES).filter(|_| !power).map(|n| (n, "times", Value::times as fn(Value, Value) -> Value))
    }

    fn factor(&self, at: usize) -> Option<Expression> {
        if self.at(at, &["minus|negative|-"]).is_some() {
            let inner = self.factor(at + 1)?;
            return Some(Expression { value: inner.value.negative(), text: format!("minus {}", inner.text), ..inner });
        }
        if one_of(self.word(at), "the|number") {
            return self.factor(at + 1);
        }
        let base = self.function(at).or_else(|| self.part(at)).or_else(|| self.atom(at))?;
        Some(self.powers(base))
    }

    /// Functions that stand before their operand.
    fn function(&self, at: usize) -> Option<Expression> {
        let twice: Function = |x| x.times(Value::new(2.0));
        let table: [(&[&str], &str, Function); 10] = [
            (
                &["square|squared root|route|roots of|from", "square root|route", "root of", "sqrt", "sqrt of"],
                "the square root of",
                Value::square_root,
            ),
            (&["cube|cubic|cubed|third root of|from", "cube|cubic root"], "the cube root of", Value::cube_root),
            (&["square of"], "the square of", |x| x.times(x)),
            (&["cube of"], "the cube of", |x| x.times(x).times(x)),
            (&["double of", "double", "twice", "twice as much as"], "twice", twice),
            (&["triple of", "triple|thrice|treble"], "three times", |x| x.times(Value::new(3.0))),
            (&["quadruple", "quadruple of"], "four times", |x| x.times(Value::new(4.0))),
            (&["factorial of", "factorial"], "the factorial of", Value::factorial),
            (&["absolute value of"], "the absolute value of", Value::absolute),
            (&["reciprocal|inverse of"], "the reciprocal of", |x| Value::new(1.0).over(x)),
        ];
        let (n, said, function) =
            table.iter().find_map(|(names, said, function)| self.at(at, names).map(|n| (n, said, function)))?;
        let inner = self.factor(at + n)?;
        let (text, end, value) = (format!("{said} {}", inner.text), inner.end, function(inner.value));
        Some(inner.applied(text, end, value))
    }

    /// Half of ninety, a third of that, three quarters of a thousand.
    fn part(&self, at: usize) -> Option<Expression> {
        let part = numbers::read(self.words.get(at..)?, numbers::STRICT).filter(|part| part.fraction)?;
        let end = at + part.len;
        let whole = self.factor(end + usize::from(one_of(self.word(end), "of|off")))?;
        let denominator = 1.0 / part.value;
        let value = if (denominator - denominator.round()).abs() < 1e-9 {
            whole.value.over(Value::new(denominator.round()))
        } else {
            Value::new(round_off(whole.value.real * part.value))
        };
        let text = format!("{} of {}", self.words[at..end].join(" "), whole.text);
        let end = whole.end;
        Some(whole.applied(text, end, value))
    }

    fn atom(&self, at: usize) -> Option<Expression> {
        if self.word(at) == "(" {
            let inner = self.sum(at + 1)?;
            let end = inner.end + usize::from(self.word(inner.end) == ")");
            return Some(Expression { end, text: format!("({})", inner.text), ..inner });
        }
        if one_of(self.word(at), "that|it|this|result|answer") {
            let value = self.that?;
            return Some(Expression { value, text: value.say().0, end: at + 1, n_steps: 0 });
        }
        if self.word(at) == "pi" {
            return Some(Expression { text: "pi".into(), ..Expression::number(std::f64::consts::PI, at + 1) });
        }
        let found = numbers::read(self.words.get(at..)?, LENIENT)?;
        let end = at + found.len;
        // A recognizer writes "twenty to" for twenty two.
        let spoken = self.words[at..end].iter().all(|word| word.parse::<f64>().is_err());
        let tens = found.value >= 20.0 && found.value % 10.0 == 0.0;
        if spoken && tens && self.operator_or_end(end + 1) {
            let unit = if one_of(self.word(end), "to|too") { 2.0 } else { 4.0 };
            if one_of(self.word(end), "to|too|for") {
                return Some(Expression::number(found.value + unit, end + 1));
            }
        }
        Some(Expression::number(found.value, end))
    }

    fn operator_or_end(&self, at: usize) -> bool {
        at >= self.words.len() || self.plus_or_minus(at).is_some() || self.times_or_over(at).is_some()
    }

    /// What stands after its operand: squared, to the power of, percent of.
    fn powers(&self, mut left: Expression) -> Expression {
        while let Some(next) = self.power(&left) {
            left = next;
        }
        left
    }

    fn power(&self, left: &Expression) -> Option<Expression> {
        let at = left.end;
        let fixed = |said: &str, n: usize, exponent: f64| {
            let value = left.value.power(Value::new(exponent));
            Some(left.clone().applied(format!("{} {said}", left.text), at + n, value))
        };
        if let Some(n) = self.at(at, &["squared|square", "to the square", "all squared"]) {
            return fixed("squared", n, 2.0);
        }
        if let Some(n) = self.at(at, &["cubed", "to the cube", "all cubed"]) {
            return fixed("cubed", n, 3.0);
        }
        if let Some(n) = self.at(at, &["factorial|!"]) {
            return Some(left.clone().applied(format!("{} factorial", left.text), at + n, left.value.factorial()));
        }
        if let Some(n) = self.at(at, &["percent|percentage", "per cent|sent"]) {
            return self.percent(left, at + n).or_else(|| {
                let value = left.value.over(Value::new(100.0));
                Some(left.clone().applied(format!("{} percent", left.text), at + n, value))
            });
        }
        let exponent = self.exponent(at)?;
        let value = left.value.power(exponent.value);
        Some(left.clone().joined(exponent, "to the power of", value))
    }

    /// `15 percent of 200`; `15 percent off 200`.
    fn percent(&self, left: &Expression, at: usize) -> Option<Expression> {
        const OF: &[&str] =
            &["of|off|from|on", "off of", "out of", "tip|tax|discount on|of|off|for|from", "tip|tax|discount on a"];
        let n = self.at(at, OF)?;
        let whole = self.factor(at + n)?;
        let off = one_of(self.word(at), "off|discount");
        let share = left.value.times(whole.value).over(Value::new(100.0));
        let value = if off { whole.value.minus(share) } else { share };
        let text = format!("{} percent {} {}", left.text, if off { "off" } else { "of" }, whole.text);
        let end = whole.end;
        Some(whole.applied(text, end, value))
    }

    /// `to the power of three`, `to the third power`, `^ 3`.
    fn exponent(&self, at: usize) -> Option<Expression> {
        if let Some(exponent) = self.at(at, POWER).and_then(|n| self.factor(at + n)) {
            return Some(exponent);
        }
        let n = self.at(at, &["to the", "raised to the", "to"])?;
        let (value, len) = numbers::ordinal_at(self.words.get(at + n..)?)?;
        let end = at + n + len;
        Some(Expression::number(f64::from(value), end + usize::from(self.word(end) == "power")))
    }
}

/// Two thirds of ninety is sixty, not 59.999.
fn round_off(value: f64) -> f64 {
    let rounded = value.round();
    if (value - rounded).abs() < 1e-9 * value.abs().max(1.0) { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    fn check(question: &str, answer: &str) {
        let query = Query::new(question);
        let expression = read(&query.words, Some(Value::new(10.0))).unwrap_or_else(|| panic!("{question}"));
        let text = format!("{} {}", expression.text, expression.value.say_is());
        assert_eq!((text.as_str(), expression.end), (answer, query.words.len()), "{question}");
    }

    #[test]
    fn calculations_in_a_row() {
        for (question, answer) in [
            ("twenty three times seven", "23 times 7 is 161"),
            ("two plus three times four", "2 plus 3 times 4 is 14"),
            ("(2+3)*4", "(2 plus 3) times 4 is 20"),
            ("10 - 4 - 3", "10 minus 4 minus 3 is 3"),
            ("half of ninety", "half of 90 is 45"),
            ("two thirds of ninety", "two thirds of 90 is 60"),
            ("fifteen percent of two hundred", "15 percent of 200 is 30"),
            ("20% off 50", "20 percent off 50 is 40"),
            ("a hundred plus ten percent", "100 plus 10 percent is 110"),
            ("square root of sixteen plus nine", "the square root of 16 plus 9 is 13"),
            ("two to the power of ten", "2 to the power of 10 is 1024"),
            ("two to the tenth power", "2 to the power of 10 is 1024"),
            ("2^0.5", "2 to the power of 0.5 is about 1.4142"),
            ("three squared plus four squared", "3 squared plus 4 squared is 25"),
            ("minus three plus five", "minus 3 plus 5 is 2"),
            ("5!", "5 factorial is 120"),
            ("two plus two then times three", "2 plus 2 times 3 is 12"),
            ("double that plus one", "twice 10 plus 1 is 21"),
            ("99999999999 times 99999999999", "99999999999 times 99999999999 is 9999999999800000000001"),
            ("too plus for", "2 plus 4 is 6"),
            ("twenty to plus won", "22 plus 1 is 23"),
            ("three point five times two", "3.5 times 2 is 7"),
            ("ten over four", "10 divided by 4 is 2.5"),
            ("7 x 8", "7 times 8 is 56"),
        ] {
            check(question, answer);
        }
        let by_zero = read(&Query::new("five divided by zero").words, None).unwrap();
        assert_eq!(by_zero.value.wrong, Some("I cannot divide by zero"));
        assert_eq!(go_on(&Query::new("times two").words, Value::new(21.0)).unwrap().value.real, 42.0);
        assert_eq!(go_on(&Query::new("cat").words, Value::new(21.0)), None);
    }
}
