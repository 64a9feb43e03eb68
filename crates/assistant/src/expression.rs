//! Calculations said or written in a row: `23 times 7`, `half of ninety`, `(2+3)*4`.
//!
//! A recursive descent over words; multiplication binds before addition. The words for operators and functions stand
//! in `arithmetic.toml`; commands (`add five to seven`) are read by `arithmetic`.

use crate::numbers;
use crate::query::{begins, one_of};
use serde::Deserialize;

/// A value, or the sentence that says why there is none.
pub(crate) type Outcome = Result<f64, &'static str>;

/// An operator or a function, as `arithmetic.toml` describes it.
#[derive(Deserialize)]
pub(crate) struct Operation {
    /// How a voice says it, which also names it.
    spoken: String,
    said: String,
    #[serde(default)]
    level: String,
}

/// The operations by their position.
#[derive(Deserialize)]
pub(crate) struct Operations {
    operator: Vec<Operation>,
    before: Vec<Operation>,
    after: Vec<Operation>,
}

fn binary(operator: &str, a: f64, b: f64) -> Outcome {
    match operator {
        "plus" => Ok(a + b),
        "minus" => Ok(a - b),
        "times" => Ok(a * b),
        "divided by" | "modulo" if b == 0.0 => Err("I cannot divide by zero"),
        "divided by" => Ok(a / b),
        "modulo" => Ok(a.rem_euclid(b)),
        _ if a == 0.0 && b < 0.0 => Err("I cannot divide by zero"),
        _ if a < 0.0 && b.fract() != 0.0 => Err("a negative number has no such power among the real numbers"),
        _ => Ok(a.powf(b)),
    }
}

fn unary(function: &str, x: f64) -> Outcome {
    match function {
        "the square root of" if x < 0.0 => Err("a negative number has no square root among the real numbers"),
        "the square root of" => Ok(x.sqrt()),
        "the cube root of" => Ok(x.cbrt()),
        "the square of" | "squared" => Ok(x * x),
        "the cube of" | "cubed" => Ok(x * x * x),
        "twice" => Ok(2.0 * x),
        "three times" => Ok(3.0 * x),
        "percent" => Ok(x / 100.0),
        _ if x.fract() == 0.0 && (0.0..=170.0).contains(&x) => Ok((1..=x as u32).map(f64::from).product()),
        _ => Err("I know the factorials of whole numbers from 0 to 170"),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expression {
    pub(crate) value: Outcome,
    /// As a voice says it back.
    pub(crate) text: String,
    /// Index of the first word after it.
    pub(crate) end: usize,
    /// Number of operations; a number alone has none.
    pub(crate) n_steps: usize,
}

impl Expression {
    fn of(value: f64, end: usize) -> Self {
        Self { value: Ok(value), text: numbers::say(value, 4).0, end, n_steps: 0 }
    }

    fn joined(self, operator: &str, other: Self) -> Self {
        let value = self.value.and_then(|a| binary(operator, a, other.value?));
        let text = format!("{} {operator} {}", self.text, other.text);
        Self { value, text, end: other.end, n_steps: self.n_steps + other.n_steps + 1 }
    }

    fn applied(self, text: String, end: usize, function: impl FnOnce(f64) -> Outcome) -> Self {
        Self { value: self.value.and_then(function), text, end, n_steps: self.n_steps + 1 }
    }
}

/// Reads calculations in some words. `that` is what "that" means: the last result.
pub(crate) struct Reader<'a> {
    pub(crate) operations: &'a Operations,
    pub(crate) words: &'a [String],
    pub(crate) that: Option<f64>,
}

impl Reader<'_> {
    /// Reads the longest calculation that begins at a place.
    pub(crate) fn read(&self, at: usize) -> Option<Expression> {
        Some(self.sum_from(self.product_from(self.factor(at)?)))
    }

    /// Continues from the last result: `times two`, `squared`, `divided by three plus one`.
    pub(crate) fn continued(&self) -> Option<Expression> {
        Some(self.go_on(Expression::of(self.that?, 0))).filter(|expression| expression.n_steps > 0)
    }

    fn go_on(&self, start: Expression) -> Expression {
        self.sum_from(self.product_from(self.powers(start)))
    }

    fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// The number of words of the longest pattern that stands at a place.
    fn at(&self, at: usize, patterns: &str) -> Option<usize> {
        let rest = self.words.get(at..)?;
        patterns.split(" / ").filter_map(|pattern| begins(rest, pattern)).max()
    }

    /// The operator of a level at a place, and how many words it has.
    fn operator(&self, at: usize, level: &str) -> Option<(usize, &str)> {
        let is_other = level != "power" && self.at(at, "times times").is_some();
        let mut operators = self.operations.operator.iter().filter(|operator| operator.level == level && !is_other);
        operators.find_map(|operator| Some((self.at(at, &operator.said)?, operator.spoken.as_str())))
    }

    fn sum_from(&self, mut left: Expression) -> Expression {
        while let Some((n, operator)) = self.operator(left.end, "sum") {
            let Some(mut right) = self.factor(left.end + n).map(|factor| self.product_from(factor)) else { break };
            // A hundred plus ten percent is a hundred and ten.
            if right.n_steps == 1 && right.text.ends_with(" percent") {
                right.value = left.value.and_then(|whole| Ok(whole * right.value?));
            }
            left = left.joined(operator, right);
        }
        left
    }

    fn product_from(&self, mut left: Expression) -> Expression {
        while let Some((n, operator)) = self.operator(left.end, "product") {
            let Some(right) = self.factor(left.end + n) else { break };
            left = left.joined(operator, right);
        }
        left
    }

    fn factor(&self, at: usize) -> Option<Expression> {
        match self.word(at) {
            "minus" | "negative" => {
                let inner = self.factor(at + 1)?;
                let value = inner.value.map(|value| -value);
                Some(Expression { value, text: format!("minus {}", inner.text), ..inner })
            }
            "the" | "number" => self.factor(at + 1),
            _ => Some(self.powers(self.function(at).or_else(|| self.share(at)).or_else(|| self.atom(at))?)),
        }
    }

    /// A function that stands before its operand.
    fn function(&self, at: usize) -> Option<Expression> {
        let functions = &self.operations.before;
        let (n, name) = functions.iter().find_map(|f| Some((self.at(at, &f.said)?, &f.spoken)))?;
        let inner = self.factor(at + n)?;
        let text = format!("{name} {}", inner.text);
        let end = inner.end;
        Some(inner.applied(text, end, |x| unary(name, x)))
    }

    /// `half of ninety`, `a third of that`, `three quarters of a thousand`.
    fn share(&self, at: usize) -> Option<Expression> {
        let part = numbers::read(self.words.get(at..)?).filter(|part| part.fraction)?;
        let end = at + part.len;
        let whole = self.factor(end + usize::from(one_of(self.word(end), "of|off")))?;
        let text = format!("{} of {}", self.words[at..end].join(" "), whole.text);
        let after = whole.end;
        Some(whole.applied(text, after, |whole| Ok(whole * part.value)))
    }

    fn atom(&self, at: usize) -> Option<Expression> {
        match self.word(at) {
            "(" => {
                let inner = self.read(at + 1)?;
                let end = inner.end + usize::from(self.word(inner.end) == ")");
                Some(Expression { end, text: format!("({})", inner.text), ..inner })
            }
            "that" | "it" | "this" | "result" | "answer" => Some(Expression::of(self.that?, at + 1)),
            "pi" => Some(Expression { text: "pi".into(), ..Expression::of(std::f64::consts::PI, at + 1) }),
            _ => {
                let number = numbers::read(self.words.get(at..)?)?;
                Some(Expression::of(number.value, at + number.len))
            }
        }
    }

    fn powers(&self, mut left: Expression) -> Expression {
        while let Some(next) = self.power(&left) {
            left = next;
        }
        left
    }

    /// What stands after its operand: squared, percent of, to the power of, to the third power.
    fn power(&self, left: &Expression) -> Option<Expression> {
        let at = left.end;
        if let Some((n, name)) = self.operations.after.iter().find_map(|f| Some((self.at(at, &f.said)?, &f.spoken))) {
            let of = if name == "percent" { self.percent(left, at + n) } else { None };
            let applied = || left.clone().applied(format!("{} {name}", left.text), at + n, |x| unary(name, x));
            return Some(of.unwrap_or_else(applied));
        }
        if let Some((n, name)) = self.operator(at, "power")
            && let Some(exponent) = self.factor(at + n)
        {
            return Some(left.clone().joined(name, exponent));
        }
        let n = self.at(at, "to the / raised to the / to")?;
        let (value, len) = numbers::ordinal_at(self.words.get(at + n..)?)?;
        let end = at + n + len;
        let exponent = Expression::of(f64::from(value), end + usize::from(self.word(end) == "power"));
        Some(left.clone().joined("to the power of", exponent))
    }

    /// `15 percent of 200`; `15 percent off 200`.
    fn percent(&self, left: &Expression, at: usize) -> Option<Expression> {
        let n = self
            .at(at, "of|off|from|on / off of / out of / tip|tax|discount on|of|off|for|from / tip|tax|discount on a")?;
        let whole = self.factor(at + n)?;
        let is_off = one_of(self.word(at), "off|discount");
        let text = format!("{} percent {} {}", left.text, if is_off { "off" } else { "of" }, whole.text);
        let end = whole.end;
        let percent = left.value;
        Some(whole.applied(text, end, |whole| {
            let share = percent? * whole / 100.0;
            Ok(if is_off { whole - share } else { share })
        }))
    }
}
