//! The value of a calculation: a real number, exact where it is whole, or the reason why there is none.

use super::numbers;

/// A result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub real: f64,
    /// The same, where it is known to be whole: products of large numbers stay exact.
    whole: Option<i128>,
    /// Why there is no result.
    pub wrong: Option<&'static str>,
}

const BY_ZERO: &str = "I cannot divide by zero";

impl Value {
    pub fn new(real: f64) -> Self {
        let whole = (real.fract() == 0.0 && real.abs() < 9e15).then_some(real as i128);
        Self { real, whole, wrong: None }
    }

    fn wrong(why: &'static str) -> Self {
        Self { real: f64::NAN, whole: None, wrong: Some(why) }
    }

    fn with(self, other: Self, real: f64, whole: impl Fn(i128, i128) -> Option<i128>) -> Self {
        let wrong = self.wrong.or(other.wrong);
        let whole = self.whole.zip(other.whole).and_then(|(a, b)| whole(a, b));
        let real = whole.map_or(real, |whole| whole as f64);
        Self { real, whole: whole.or(Self::new(real).whole), wrong }
    }

    pub fn plus(self, other: Self) -> Self {
        self.with(other, self.real + other.real, i128::checked_add)
    }

    pub fn minus(self, other: Self) -> Self {
        self.with(other, self.real - other.real, i128::checked_sub)
    }

    pub fn times(self, other: Self) -> Self {
        self.with(other, self.real * other.real, i128::checked_mul)
    }

    pub fn over(self, other: Self) -> Self {
        if other.real == 0.0 && other.wrong.is_none() {
            return Self::wrong(BY_ZERO);
        }
        let whole = |a: i128, b: i128| (b != 0 && a % b == 0).then(|| a / b);
        self.with(other, self.real / other.real, whole)
    }

    /// What is left of a division, with the sign of the divisor.
    pub fn modulo(self, other: Self) -> Self {
        if other.real == 0.0 && other.wrong.is_none() {
            return Self::wrong(BY_ZERO);
        }
        self.with(other, self.real.rem_euclid(other.real), i128::checked_rem_euclid)
    }

    pub fn power(self, other: Self) -> Self {
        if self.real == 0.0 && other.real < 0.0 {
            return Self::wrong(BY_ZERO);
        }
        if self.real < 0.0 && other.real.fract() != 0.0 {
            return Self::wrong("A negative number has no such power among the real numbers");
        }
        let whole = |a: i128, b: i128| a.checked_pow(u32::try_from(b).ok()?);
        self.with(other, self.real.powf(other.real), whole)
    }

    pub fn square_root(self) -> Self {
        if self.real < 0.0 {
            return Self::wrong("A negative number has no square root among the real numbers");
        }
        self.with(self, self.real.sqrt(), |_, _| None)
    }

    pub fn cube_root(self) -> Self {
        self.with(self, self.real.cbrt(), |_, _| None)
    }

    pub fn factorial(self) -> Self {
        match self.whole {
            Some(n @ 0..=170) => {
                let whole = (1..=n).try_fold(1i128, i128::checked_mul);
                let real = (1..=n).map(|n| n as f64).product();
                self.with(self, real, |_, _| whole)
            }
            Some(n) if n > 170 => Self::wrong("That factorial is too large for me"),
            _ => Self::wrong("Only whole numbers from zero up have a factorial"),
        }
    }

    pub fn absolute(self) -> Self {
        self.with(self, self.real.abs(), |a, _| a.checked_abs())
    }

    pub fn negative(self) -> Self {
        self.with(self, -self.real, |a, _| a.checked_neg())
    }

    /// For a voice, and whether it is exact.
    pub fn say(self) -> (String, bool) {
        match self.whole {
            Some(whole) => (whole.to_string().replace('-', "minus "), true),
            None => numbers::say(self.real, 4),
        }
    }

    /// `is 161`, `is about 3.3333`.
    pub fn say_is(self) -> String {
        let (text, exact) = self.say();
        if exact { format!("is {text}") } else { format!("is about {text}") }
    }
}
