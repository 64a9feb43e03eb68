//! Arithmetic as it is asked: finds the calculation in a question, reads commands (`add five to seven`), goes on from
//! the last result (`and times two`).

use super::arithmetic::{self, Expression};
use super::numbers::{self, STRICT};
use super::query::{Query, find, one_of};
use super::value::Value;
use super::{Reply, Scene, sentence};

/// Words a question puts around a calculation; any other word makes it less likely that one was meant.
const AROUND: &str = "what|is|how|much|many|calculate|compute|are|does|equal|equals|answer|to|result|solve|evaluate|do|\
    i|get|you|would|be|comes|come|when|math|maths|problem|of|the|a|value|that|it|will|make|makes|give|gives|if|we|\
    have|was|were|about|out|and|in|for|me|tell|find|add|up|sum|total|this|equation|question|number|whats|did|say|\
    work|figure|can|let|us|my|need|help|with|by|multiply|then|now|or|s|wants|want|know|please|calculation|percent|on";

/// The last result, which "that" means: the last question asked again, else the last number of its answer.
fn last_value(scene: &Scene<'_>) -> Option<Value> {
    let (last, earlier) = scene.before_last()?;
    if let Some((_, expression)) = best(&earlier, &Query::new(&last.question)) {
        return Some(expression.value).filter(|value| value.wrong.is_none());
    }
    let words = Query::new(&last.answer).all;
    numbers::all(&words, STRICT).last().map(|(_, found)| Value::new(found.value))
}

pub(super) fn answer(scene: &Scene<'_>, query: &Query) -> Option<Reply> {
    let (score, expression) = best(scene, query)?;
    let text = match expression.value.wrong {
        Some(why) => format!("{why}."),
        None => sentence(&format!("{} {}", expression.text, expression.value.say_is())),
    };
    Some(Reply { score, text })
}

/// The calculation most likely meant.
fn best(scene: &Scene<'_>, query: &Query) -> Option<(u8, Expression)> {
    let words = &query.words;
    let has_number = !numbers::all(words, numbers::LENIENT).is_empty();
    let refers = words.iter().any(|word| one_of(word, "that|it|this|result|answer"));
    if !has_number && !refers {
        return continued(scene, words).map(|found| (70, found));
    }
    if let Some(found) = command(scene, words) {
        return Some((88, found));
    }
    let that = if refers { last_value(scene) } else { None };
    let mut best: Option<(usize, Expression)> = None;
    for start in 0..words.len() {
        let Some(found) = arithmetic::read(&words[start..], that).filter(|found| found.n_steps > 0) else { continue };
        let longer = best.as_ref().is_none_or(|(_, best)| (found.n_steps, found.end) > (best.n_steps, best.end));
        if longer {
            best = Some((start, found));
        }
    }
    let alone = best.as_ref().is_some_and(|(start, found)| *start == 0 && found.end == words.len());
    if !alone {
        // "Times two", "plus five": an operator without anything before it goes on from the last result.
        let first = best.as_ref().map_or(words.len(), |(start, _)| *start);
        if let Some(found) = continued(scene, words).filter(|_| first > 0) {
            return Some((84, found));
        }
    }
    let (start, found) = best?;
    let around = words[..start].iter().chain(&words[start + found.end..]);
    let n_foreign = around.filter(|word| !one_of(word, AROUND)).count();
    let score = 85usize.saturating_sub(12 * n_foreign) as u8;
    (score >= 30).then_some((score, found))
}

/// A calculation that goes on from the last result.
fn continued(scene: &Scene<'_>, words: &[String]) -> Option<Expression> {
    let mut rest = words;
    while let Some((first, others)) = rest.split_first() {
        if !one_of(first, "and|now|then|what|is|about|how|but|to|that|it|so|if|you|i|we|do|the") || others.is_empty() {
            break;
        }
        rest = others;
    }
    let first = rest.first()?;
    if !one_of(
        first,
        "plus|minus|times|+|-|*|/|^|divided|multiplied|squared|cubed|over|squared|modulo|raised|square|cube|time|take|less|add|subtract|multiply|divide|double|halve|triple|factorial|half|quarter",
    ) {
        return None;
    }
    let value = last_value(scene)?;
    let of_it = |n: usize| rest.len() == n || (rest.len() == n + 1 && one_of(&rest[n], "it|that|this|again"));
    let function = match first.as_str() {
        "double" if of_it(1) => Some(("twice", value.times(Value::new(2.0)))),
        "triple" if of_it(1) => Some(("three times", value.times(Value::new(3.0)))),
        "halve" | "half" if of_it(1) => Some(("half of", value.over(Value::new(2.0)))),
        "square" if of_it(1) => Some(("the square of", value.times(value))),
        "cube" if of_it(1) => Some(("the cube of", value.times(value).times(value))),
        "square" if of_it(2) => Some(("the square root of", value.square_root())),
        _ => None,
    };
    if let Some((said, result)) = function {
        let text = format!("{said} {}", value.say().0);
        return Some(Expression { value: result, text, end: words.len(), n_steps: 1 });
    }
    arithmetic::go_on(rest, value)
}

fn found(text: String, value: Value) -> Option<Expression> {
    Some(Expression { value, text, end: 0, n_steps: 1 })
}

/// Commands and set phrases, where the numbers do not stand around an operator.
fn command(scene: &Scene<'_>, words: &[String]) -> Option<Expression> {
    let first = numbers::all(words, STRICT).first().map_or(words.len(), |(at, _)| *at);
    let verb = |names: &str| words[..first].iter().position(|word| one_of(word, names));
    let has = |pattern: &str| find(words, pattern).is_some();
    let two = numbers::at_least(words, 2);
    plurals(words).or_else(|| percentages(words, &two)).or_else(|| comparisons(words, &two)).or_else(|| {
        if let Some(at) =
            verb("add|adding|added|sum|total|average|mean|product|multiply|multiplying|difference|quotient")
        {
            let rest = &words[at + 1..];
            return listed(&words[at], rest, || last_value(scene));
        }
        if let Some(at) = verb("subtract|subtracting|deduct|take|taking|takeaway|remove|removing") {
            return taken(&words[at + 1..], || last_value(scene));
        }
        if let Some(at) = verb("divide|dividing|split|splitting|share|sharing") {
            return divided(&words[at + 1..], || last_value(scene));
        }
        let together = ["together", "altogether", "make|makes|made", "in total", "combined", "add|sum up"];
        let neighbours = two.len() == 2 && words.len() <= first + 7 && together.iter().any(|pattern| has(pattern));
        if (neighbours && has("and") && !has("have|if")) || only_and(words, &two) {
            return join(&two, "plus", Value::plus);
        }
        story(words)
    })
}

/// `what is two and two`: nothing but two numbers around an "and".
fn only_and(words: &[String], two: &[f64]) -> bool {
    let found = numbers::all(words, STRICT);
    let [(first, a), (second, b)] = found.as_slice() else { return false };
    let between = &words[first + a.len..*second];
    let mut around = words[..*first].iter().chain(&words[second + b.len..]);
    let neutral = |word: &String| one_of(word, "what|is|how|much|are|equals|does|do|equal|make|makes");
    two.len() == 2 && between == ["and"] && around.all(neutral)
}

/// All values joined by one operator.
fn join(values: &[f64], word: &str, apply: fn(Value, Value) -> Value) -> Option<Expression> {
    let mut values = values.iter().map(|value| Value::new(*value));
    let first = values.next()?;
    let mut result = (first.say().0, first);
    for value in values {
        result = (format!("{} {word} {}", result.0, value.say().0), apply(result.1, value));
    }
    found(result.0, result.1)
}

/// `add five to seven`, `the product of 3, 4 and 5`, `the average of ...`.
fn listed(verb: &str, rest: &[String], that: impl Fn() -> Option<Value>) -> Option<Expression> {
    let infix = ["plus|times|minus|*|+|-|squared|root|percent|half|divided"];
    if infix.iter().any(|pattern| find(rest, pattern).is_some()) && !one_of(verb, "average|mean") {
        return None;
    }
    let mut values = numbers::at_least(rest, 2);
    if let (1, Some(that)) = (values.len(), that())
        && one_of(verb, "add|multiply")
    {
        values.insert(0, that.real);
    }
    if values.len() < 2 {
        return None;
    }
    match verb {
        "product" | "multiply" | "multiplying" => join(&values, "times", Value::times),
        "quotient" => join(&values, "divided by", Value::over),
        "difference" => {
            let (large, small) = (values[0].max(values[1]), values[0].min(values[1]));
            join(&[large, small], "minus", Value::minus)
        }
        "average" | "mean" => {
            let sum = values.iter().fold(Value::new(0.0), |sum, value| sum.plus(Value::new(*value)));
            let list: Vec<_> = values.iter().map(|value| Value::new(*value).say().0).collect();
            found(format!("the average of {}", super::and_list(&list)), sum.over(Value::new(values.len() as f64)))
        }
        _ => join(&values, "plus", Value::plus),
    }
}

/// `subtract three from ten`, `take five away`.
fn taken(rest: &[String], that: impl Fn() -> Option<Value>) -> Option<Expression> {
    let values = numbers::at_least(rest, 2);
    match (values.as_slice(), find(rest, "from").is_some()) {
        ([less, from, ..], true) => join(&[*from, *less], "minus", Value::minus),
        ([less], _) if numbers::all(rest, STRICT).len() == 1 => join(&[that()?.real, *less], "minus", Value::minus),
        _ => None,
    }
}

/// `divide twelve by four`, `divide five into twenty`, `split 30 among six people`.
fn divided(rest: &[String], that: impl Fn() -> Option<Value>) -> Option<Expression> {
    let values = numbers::at_least(rest, 2);
    match values.as_slice() {
        [part, whole, ..] if find(rest, "into").is_some() && part < whole => {
            join(&[*whole, *part], "divided by", Value::over)
        }
        // More operators: the calculation in a row reads them.
        [a, b] => join(&[*a, *b], "divided by", Value::over),
        [by] => join(&[that()?.real, *by], "divided by", Value::over),
        _ => None,
    }
}

/// `six sevens`, `how many nines are in eighty one`.
fn plurals(words: &[String]) -> Option<Expression> {
    let at = words.iter().position(|word| numbers::plural(word).is_some())?;
    let value = numbers::plural(&words[at])?;
    if find(words, "count|random|pick|by|sided").is_some() {
        return None;
    }
    if let Some(times) =
        (0..at).find_map(|start| numbers::read(&words[start..at], STRICT).filter(|found| start + found.len == at))
    {
        return join(&[times.value, value], "times", Value::times);
    }
    let whole = numbers::read(words.get(find(words, "in|into|make")?.end..)?, STRICT)?.value;
    find(words, "how many")?;
    join(&[whole, value], "divided by", Value::over)
}

/// `what percent of 80 is 20`, `increase fifty by ten percent`, `30 out of 40 as a percentage`.
fn percentages(words: &[String], two: &[f64]) -> Option<Expression> {
    let has = |pattern: &str| find(words, pattern);
    let [a, b] = *two else { return None };
    let share = |part: f64, whole: f64| {
        let value = Value::new(part).times(Value::new(100.0)).over(Value::new(whole));
        found(format!("as a percentage, {} out of {}", Value::new(part).say().0, Value::new(whole).say().0), value)
    };
    if has("is|are what percent|percentage").is_some() {
        return share(a, b);
    }
    if has("what percent|percentage of *").is_some() && has("is|are").is_some() {
        // "What percent of 80 is 20", but also "of 80, what percent is 20".
        return share(b, a);
    }
    if has("what percent|percentage").is_some()
        || has("as a percentage|percent").is_some()
        || has("in percent").is_some()
    {
        return share(a, b);
    }
    let by_percent = has("by * percent").or_else(|| has("by * * percent")).is_some();
    let verb = |names: &str| words.iter().position(|word| one_of(word, names));
    let (base, percent) = (Value::new(a), Value::new(b));
    let part = base.times(percent).over(Value::new(100.0));
    let text = |how: &str| format!("{} {how} {} percent", base.say().0, percent.say().0);
    if by_percent && verb("increase|increased|raise|raised|grow|grows|up|plus").is_some() {
        return found(text("plus"), base.plus(part));
    }
    if by_percent
        && verb("decrease|decreased|reduce|reduced|lower|lowered|drop|down|minus|discount|discounted").is_some()
    {
        return found(text("minus"), base.minus(part));
    }
    None
}

/// `five more than ten`, `how many times does seven go into sixty three`, `the remainder of 17 divided by 5`.
fn comparisons(words: &[String], two: &[f64]) -> Option<Expression> {
    let has = |patterns: &[&str]| patterns.iter().any(|pattern| find(words, pattern).is_some());
    let [a, b] = *two else { return None };
    if has(&["remainder", "left over", "leftover"]) {
        let text = format!("the remainder of {} divided by {}", Value::new(a).say().0, Value::new(b).say().0);
        return found(text, Value::new(a).modulo(Value::new(b)));
    }
    if has(&["go|goes|fit|fits|fitting into|in", "how many times"]) {
        return join(&[b, a], "divided by", Value::over);
    }
    let question = has(&["what is", "what number is", "which number is", "how much is"]) || words.len() <= 6;
    if question && has(&["more|greater|larger|bigger|higher than"]) && !has(&["or"]) && words[0] != "is" {
        return join(&[b, a], "plus", Value::plus);
    }
    if question && has(&["less|fewer|smaller|lower than"]) && !has(&["or"]) && words[0] != "is" {
        return join(&[b, a], "minus", Value::minus);
    }
    None
}

/// `if I have five apples and eat two, how many are left`: two or more numbers and a verb before each after the first.
fn story(words: &[String]) -> Option<Expression> {
    const MORE: &str = "get|gets|buy|buys|find|finds|more|receive|receives|gain|gains|give me|gives me|earn|earns|pick|picks|add|adds|bought|got|found|another|join|joins|arrive|come|comes";
    const LESS: &str = "eat|eats|ate|lose|loses|lost|give|gives|gave|spend|spends|spent|sell|sells|sold|remove|break|drop|drops|away|leave|leaves|left|use|used|uses|throw|fly|flies|die|takes|take|took|drink|drinks";
    let asks = ["how many|much", "what do i have", "what is left"];
    let told = ["have|had|has|got|buy|bought", "there are|were|is", "with * apples"];
    let has = |patterns: &[&str]| patterns.iter().any(|pattern| find(words, pattern).is_some());
    if !has(&asks) || !has(&told) {
        return None;
    }
    let numbers = numbers::all(words, STRICT);
    let [(first, a), (second, b), ..] = numbers.as_slice() else { return None };
    let (start, after) = (first + a.len, second + b.len);
    let near = &words[start..(after + 2).min(words.len())];
    let (a, b) = (a.value, b.value);
    let gives_me = find(near, "give|gives|gave|giving me").is_some() || find(words, "how many more|less").is_some();
    if find(near, "each|every|per").is_some() {
        return join(&[a, b], "times", Value::times);
    }
    if near.iter().any(|word| one_of(word, LESS)) && !gives_me {
        return join(&[a, b], "minus", Value::minus);
    }
    near.iter().any(|word| one_of(word, MORE) || gives_me).then(|| join(&[a, b], "plus", Value::plus))?
}

#[cfg(test)]
mod tests {
    use crate::testing::check_all;

    #[test]
    fn calculations_as_they_are_asked() {
        check_all(&[
            ("what is twenty three times seven", "23 times 7 is 161."),
            ("add five to seven", "5 plus 7 is 12."),
            ("subtract three from ten", "10 minus 3 is 7."),
            ("take four away from nine", "9 minus 4 is 5."),
            ("the sum of one hundred and five", "100 plus 5 is 105."),
            ("what's the average of 3, 4 and 8", "average of 3, 4 and 8 is 5."),
            ("how many times does seven go into sixty three", "63 divided by 7 is 9."),
            ("what percent of eighty is twenty", "20 out of 80 is 25."),
            ("increase fifty by ten percent", "is 55."),
            ("what is five more than ten", "10 plus 5 is 15."),
            ("what do two and two make", "2 plus 2 is 4."),
            ("if I have five apples and eat two how many are left", "5 minus 2 is 3."),
            ("what's the remainder of seventeen divided by five", "is 2."),
            ("what is five divided by zero", "I cannot divide by zero."),
            ("one divided by three", "1 divided by 3 is about 0.3333."),
        ]);
    }
}
