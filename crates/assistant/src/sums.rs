//! Sums: numbers with plus, minus, times, divided by and percent of between them, anywhere in a request.

use crate::numbers;

#[derive(Clone, Copy, PartialEq)]
enum Operator {
    Plus,
    Minus,
    Times,
    DividedBy,
    PercentOf,
}

/// The words of each operator, the first as it is said.
const OPERATORS: [(Operator, &[&str]); 5] = [
    (Operator::Plus, &["plus"]),
    (Operator::Minus, &["minus", "less"]),
    (Operator::Times, &["times", "multiplied by"]),
    (Operator::DividedBy, &["divided by", "over"]),
    (Operator::PercentOf, &["percent of"]),
];

/// The answer to the first sum in the words.
pub(crate) fn answer(words: &[String]) -> Option<String> {
    let (mut values, mut operators) = (0..words.len()).find_map(|at| read(&words[at..]))?;
    let mut said = numbers::spoken(values[0]);
    for (operator, value) in operators.iter().zip(&values[1..]) {
        let name = OPERATORS.iter().find(|(known, _)| known == operator).map_or("", |(_, names)| names[0]);
        said = format!("{said} {name} {}", numbers::spoken(*value));
    }
    let mut at = 0;
    while at < operators.len() {
        let product = match operators[at] {
            Operator::Plus | Operator::Minus => {
                at += 1;
                continue;
            }
            Operator::Times => values[at] * values[at + 1],
            Operator::PercentOf => values[at] / 100.0 * values[at + 1],
            Operator::DividedBy if values[at + 1] == 0.0 => return Some("I cannot divide by zero.".to_owned()),
            Operator::DividedBy => values[at] / values[at + 1],
        };
        values[at] = product;
        values.remove(at + 1);
        operators.remove(at);
    }
    let signed = operators.iter().zip(&values[1..]);
    let rest: f64 = signed.map(|(operator, value)| if *operator == Operator::Minus { -value } else { *value }).sum();
    let result = values[0] + rest;
    result.is_finite().then(|| format!("{said} is {}.", numbers::spoken(result)))
}

/// The numbers and the operators between them at the beginning of the words; at least one operator.
fn read(words: &[String]) -> Option<(Vec<f64>, Vec<Operator>)> {
    let (first, mut at) = numbers::read(words)?;
    let mut values = vec![first];
    let mut operators = Vec::new();
    while let Some((operator, n)) = operator(&words[at..])
        && let Some((value, n_words)) = numbers::read(&words[at + n..])
    {
        operators.push(operator);
        values.push(value);
        at += n + n_words;
    }
    (!operators.is_empty()).then_some((values, operators))
}

fn operator(words: &[String]) -> Option<(Operator, usize)> {
    OPERATORS.iter().find_map(|(operator, names)| {
        let fits = |name: &&&str| name.split(' ').zip(words).filter(|(name, word)| name == word).count();
        let name = names.iter().find(|name| fits(name) == name.split(' ').count())?;
        Some((*operator, name.split(' ').count()))
    })
}
