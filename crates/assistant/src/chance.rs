//! Coins, dice, random numbers.

use crate::and_list;
use crate::conversation::Context;
use crate::intents::say;
use crate::numbers;
use crate::query::Query;

pub(crate) fn answer(context: &Context<'_>, query: &Query) -> Option<String> {
    if query.is("again / once more / one more time / another one / flip|roll|throw|toss|pick again / flip|roll|toss it again / do it|that again") {
        let (last, earlier) = context.before_last()?;
        return answer(&earlier, &Query::new(&last.question));
    }
    if query.is("yes or no") {
        return say(["yes", "no"][context.random(2) as usize]);
    }
    let intents = [coin, dice, random_number];
    intents.iter().find_map(|intent| intent(context, query))
}

/// The number of coins or dice asked for, from 1 to 20.
fn how_many(query: &Query) -> usize {
    query.values().first().map_or(1, |n| n.clamp(1.0, 20.0) as usize)
}

fn coin(context: &Context<'_>, query: &Query) -> Option<String> {
    if !query.has("coin / flip|toss|throw * coins / head|heads or tail|tails / flip it")
        || query.has("what is a / coins in|make")
    {
        return None;
    }
    let sides: Vec<_> = (0..how_many(query)).map(|_| ["heads", "tails"][context.random(2) as usize]).collect();
    say(&if sides.len() == 1 { format!("it is {}", sides[0]) } else { format!("they are {}", and_list(&sides)) })
}

fn dice(context: &Context<'_>, query: &Query) -> Option<String> {
    let has_noun = query.has("die|dice / d *");
    if !has_noun
        || !query.has("roll|throw|rolled|cast|rolling|toss|shake|dice / a die")
        || query.has("how many / what is a")
    {
        return None;
    }
    let is_sided = query.has("sided|sides|d");
    let n_sides = if is_sided { query.values().last().map_or(6, |n| n.clamp(2.0, 1e6) as u32) } else { 6 };
    let n = match query.numbers.len() {
        _ if query.has("pair of / a couple of") => 2,
        1 if is_sided => 1,
        _ => how_many(query),
    };
    let rolled: Vec<u32> = (0..n).map(|_| context.random(n_sides) + 1).collect();
    let spoken: Vec<_> = rolled.iter().map(u32::to_string).collect();
    match rolled.as_slice() {
        [one] => say(&format!("I rolled a {one}")),
        all => say(&format!("I rolled {}, which makes {}", and_list(&spoken), all.iter().sum::<u32>())),
    }
}

fn random_number(context: &Context<'_>, query: &Query) -> Option<String> {
    const ASKS: &str = "random|lucky number|numbers|integer / pick|choose|think|guess|generate|give|say|name \
        a|any|of|me|one|another number|random|digit|any / think of a number / give me a|any|another number / \
        a number between|from|up / number at random";
    if !query.has(ASKS) || query.has("even|odd|prime|larger|bigger") {
        return None;
    }
    let (low, high) = match numbers::at_least(&query.words, 2).as_slice() {
        [low, high, ..] => (low.min(*high), low.max(*high)),
        [high] if *high > 1.0 => (1.0, *high),
        _ => (1.0, 100.0),
    };
    if low.fract() != 0.0 || low.abs() > 1e9 {
        return None;
    }
    let n = (high - low).clamp(0.0, 4e9) as u32 + 1;
    say(&format!("my number is {}", (low as i64 + i64::from(context.random(n))).to_string().replace('-', "minus ")))
}
