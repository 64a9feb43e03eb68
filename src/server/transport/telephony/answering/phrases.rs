//! What words say about who answers a call: phrases of answering machines, screening services, menus and persons.
//!
//! [`judge`] reads the words that were recognized so far, without their punctuation and accents. English, German, French
//! and Spanish; other languages are judged by length and cadence alone. It has no IO and no clock.

use super::AnsweredBy;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What phrases stand for, the surest first: the first group with a phrase among the words decides.
///
/// In a phrase, `a|b` is either word, `?` behind a word makes it optional, and `*` is up to [`MAX_SKIPPED`] words.
const GROUPS: &[Group] = &[
    Group { by: AnsweredBy::Person, phrases: PERSON_ASKS, is_certain: false },
    Group { by: AnsweredBy::Voicemail, phrases: LEFT, is_certain: true },
    Group { by: AnsweredBy::Screening, phrases: SCREENING, is_certain: true },
    Group { by: AnsweredBy::Voicemail, phrases: RECORDS, is_certain: true },
    Group { by: AnsweredBy::Ivr, phrases: MENU, is_certain: true },
    Group { by: AnsweredBy::Voicemail, phrases: ABSENT, is_certain: false },
    Group { by: AnsweredBy::Person, phrases: PERSON, is_certain: false },
];

/// The phrases of all groups by each word that they may begin with.
static BY_FIRST_WORD: LazyLock<HashMap<&str, Vec<Phrase>>> = LazyLock::new(|| {
    let mut phrases: HashMap<&str, Vec<Phrase>> = HashMap::new();
    for (group, Group { phrases: of_group, .. }) in GROUPS.iter().enumerate() {
        for phrase in *of_group {
            let elements: Vec<Element> = phrase.split(' ').map(Element::of).collect();
            let Some(Element::Word { words, .. }) = elements.first() else { continue };
            for word in words.clone() {
                phrases.entry(word).or_default().push(Phrase { group, elements: elements.clone() });
            }
        }
    }
    phrases
});

/// A phrase of a group.
struct Phrase {
    group: usize,
    elements: Vec<Element>,
}

/// A part of a phrase.
#[derive(Clone)]
enum Element {
    Word { words: Vec<&'static str>, is_optional: bool },
    Skip,
}

impl Element {
    fn of(text: &'static str) -> Self {
        if text == "*" {
            return Self::Skip;
        }
        let words = text.trim_end_matches('?').split('|').collect();
        Self::Word { words, is_optional: text.ends_with('?') }
    }
}

/// Phrases that stand for the same.
struct Group {
    by: AnsweredBy,
    phrases: &'static [&'static str],
    /// Whether what follows changes nothing.
    is_certain: bool,
}

/// What the words so far say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) by: AnsweredBy,
    /// Whether what follows changes nothing; if not, a pause has to come first.
    pub(super) is_certain: bool,
}

/// Words that `*` stands for at most.
const MAX_SKIPPED: usize = 4;

/// Questions that only a person asks, some with words of machines.
const PERSON_ASKS: &[&str] = &[
    "can|may|could|shall|should i take|get",
    "want|like me to leave|give|take|pass",
    "do|would you want|like|care to leave * message",
    "can|could you call|ring * back",
    "who is|are this|you please?",
    "whos this|that|asking",
    "may|can|could i ask who",
    "who is|am calling please?",
    "have the wrong number",
    "how did you get",
    "how|what can|may|could i|we help|do|direct",
    "soll|kann|darf ich * ausrichten|hinterlassen|helfen",
    "mochten|wollen sie * nachricht hinterlassen",
    "was kann|darf ich",
    "wer ist da|dran",
    "voulez|souhaitez vous|tu * laisser un message",
    "vous voulez|souhaitez * laisser un message",
    "que puis je",
    "quiere|quieres|desea dejar|dejarle * mensaje|recado",
    "quien es|habla|llama",
    "en que puedo|podemos",
];

/// A name that is to be left, not said: machines ask for it with a number.
const LEFT: &[&str] = &["leave * name", "name * number"];

/// Services that ask for a name before they connect.
const SCREENING: &[&str] = &[
    "screening service",
    "call screening",
    "being screened",
    "say|state|record|give|announce|tell your|me name|yourself",
    "announce yourself",
    "tell|give me your name",
    "your name and the? reason|purpose",
    "your name and why you|youre",
    "your first and last name",
    "say|state who you are|is",
    "who you are and why you|youre",
    "like to know who is|whos? calling",
    "why you are|youre calling",
    "what * youre|you calling about",
    "see|check|ask if|whether this|that|the person|they|he|she is|are|can available|able|take",
    "ill ask if this|the person",
    "automated|virtual assistant",
    "not accept * unknown|anonymous|private",
    "unwanted calls",
    "nennen|sagen|sprechen|sage sie|mir * ihren|deinen namen",
    "ihren|deinen namen und den? grund",
    "filterdienst|anruffilter",
    "service de filtrage",
    "dites|indiquez|indiquer|donnez|donner|enregistrez votre nom",
    "motif|raison de votre appel",
    "filtrado de llamadas",
    "filtro de llamadas",
    "di|diga|digame|indique|grabas|graba|grabe tu|su nombre",
    "motivo de tu|su|la llamada",
];

/// What records, or says that something does.
const RECORDS: &[&str] = &[
    "after|at|to the beep|tone|signal|bleep|buzz",
    "wait for the beep|tone|signal",
    "voicemail|voicemails|answerphone",
    "voice mail|mailbox|message",
    "mailbox",
    "answering machine",
    "automatic|automated voice? messaging|answering",
    "automatic voice message",
    "messaging service",
    "record your|a message",
    "have|are|youre|youve finished recording",
    "you know the drill",
    "you know what to do",
    "anrufbeantworter|anrufbeantworters",
    "nach|auf dem|den? ton|signalton|piep|piepton|pfeifton|signal",
    "sprechen|sprecht|sprich * drauf|band",
    "nachricht aufsprechen",
    "messagerie|repondeur",
    "apres le bip|signal",
    "buzon",
    "contestador",
    "despues de|del la? senal|tono|bip",
    "tras|al la|oir senal|tono|bip",
];

/// What routes calls by keys or words, or lets them wait.
const MENU: &[&str] = &[
    "press|dial|say|push|hit one|two|three|four|five|six|seven|eight|nine|zero|star|pound|hash|1|2|3|4|5|6|7|8|9|0",
    "press|dial|push|hit the? number|star|pound|hash",
    "say or press",
    "press or say",
    "press|push any|the key|button",
    "main menu",
    "menu options",
    "following options",
    "these options",
    "you can|may say",
    "say yes or no",
    "your partys extension",
    "know|enter|dial the|your extension",
    "dial * at any time",
    "enter your|the",
    "please enter",
    "keypad|touchtone|rotary",
    "in a few words",
    "your call is very? important",
    "your call will be",
    "order * received",
    "stay|remain on the line",
    "wait|waiting time",
    "number * in the? queue",
    "in the queue",
    "may|will be recorded|monitored",
    "is being recorded|monitored",
    "quality|training purposes|assurance",
    "all * representatives|agents|operators|advisors|associates",
    "please hold while|for",
    "transfer your call",
    "for english",
    "for sales|support|billing|service|reservations",
    "drucken|wahlen|tippen|sagen sie * eins|zwei|drei|null|1|2|3|0|taste",
    "geben sie * ein",
    "rautetaste|sterntaste|hauptmenu",
    "alle * mitarbeiter|leitungen|platze * gesprach|besetzt|belegt",
    "bleiben sie * leitung|apparat",
    "moment|augenblick geduld",
    "zu schulungszwecken|qualitatszwecken",
    "aufgezeichnet",
    "willkommen bei",
    "tapez|appuyez|composez sur? le? un|une|deux|trois|zero|etoile|diese|1|2|3|0",
    "conseillers * ligne|occupes",
    "merci de * patienter",
    "veuillez patienter",
    "service client",
    "ne quittez pas",
    "marque|oprima|pulse|presione el? uno|dos|tres|cero|asterisco|1|2|3|0",
    "agentes|operadores|lineas * ocupados|ocupadas",
    "permanezca|espere en la linea",
    "llamada es muy? importante",
    "siguientes opciones",
];

/// Who is absent, without a word about a recording.
const ABSENT: &[&str] = &[
    "leave|drop|send us|me|a|your|one * message|line|text|note",
    "leave|include your|a|the|us|me name|number|details|detailed|brief|short|message",
    "check messages",
    "get back to you as|when|soon|shortly",
    "right back to you",
    "call|ring you back as soon",
    "return your call",
    "be in touch",
    "come|get to the|my phone",
    "away from my|the phone|desk",
    "isnt|not available",
    "unable|able to take|answer|come",
    "cant|cannot answer|take|come",
    "cannot be reached|connected|completed",
    "is|are currently|presently|now closed",
    "our|office hours are",
    "out of the? office",
    "i will|ill be out|away",
    "im|were|am|are not around|here|home|in",
    "nobody|noone is available",
    "no one is available",
    "were|im|am|are on vacation|holiday",
    "try * again? later",
    "try your call again",
    "switched off",
    "out of coverage|service|range",
    "not in service",
    "has been disconnected|forwarded|changed",
    "you have|youve reached",
    "customer|subscriber|person|party you are|have|were calling|called|dialed|dialled|trying",
    "nicht erreichbar",
    "nicht ran|rangehen",
    "zurzeit|derzeit|momentan * geschlossen",
    "hinterlassen|hinterlasst|hinterlasse * nachricht|nummer|namen",
    "sind|bin|wir|ich * nicht da|hause|zuhause",
    "rufe|rufen|melden * schnellstmoglich|baldmoglichst|sobald",
    "versuchen|probieren * spater",
    "unsere sprechzeiten|offnungszeiten|geschaftszeiten",
    "ausserhalb",
    "kein anschluss",
    "nicht vergeben",
    "auf|im urlaub",
    "pas disponible|joignable",
    "vous rappelle|rappellerai|rappelons|rappellerons * des|rapidement",
    "rappeler|rappelez plus? tard|ulterieurement",
    "laissez|laisse|laisser * message|coordonnees",
    "actuellement absent|ferme|fermes",
    "apagado|cobertura",
    "no puedo|podemos atenderte|atenderle|atender|contestar|responder",
    "te|le llamare|llamaremos",
    "nuestro horario",
    "deja|deje|dejame|dejenos|dejanos * mensaje|nombre|recado",
    "intentelo|llame mas tarde",
];

/// How persons answer.
const PERSON: &[&str] = &[
    "anybody|anyone|somebody there|here",
    "can you hear me",
    "this is he|she|him|her",
    "not interested",
    "hold on",
    "go ahead",
    "one|just moment|second|sec|minute",
    "just a moment|second|sec|minute",
    "what do you",
    "whats|what up|this|is",
    "sie sprechen mit",
    "einen? moment",
    "a lappareil",
    "cest moi|lui|elle",
    "soy yo",
];

/// What a person says who takes a call, alone or with a name: short answers that leave nothing to wait for.
const HELLO: &[&str] = &[
    "hello",
    "hi",
    "hey",
    "yes",
    "yeah",
    "yep",
    "yo",
    "speaking",
    "who",
    "what",
    "uh",
    "um",
    "oh",
    "hallo",
    "ja",
    "bitte",
    "guten",
    "tag",
    "morgen",
    "oui",
    "allo",
    "bonjour",
    "si",
    "diga",
    "digame",
    "bueno",
    "hola",
    "good",
    "morning",
    "afternoon",
    "evening",
    "there",
    "buenos",
    "dias",
    "buenas",
    "tardes",
    "pronto",
];

/// Who speaks, by phrases among the words. `None`: there is none.
pub(super) fn judge(words: &[String]) -> Option<Judgement> {
    let mut first = None;
    for at in 0..words.len() {
        for Phrase { group, elements } in BY_FIRST_WORD.get(words[at].as_str()).into_iter().flatten() {
            let is_before = first.is_none_or(|first| *group < first);
            if is_before && begins_with(&words[at..], elements) {
                first = Some(*group);
            }
        }
    }
    let Group { by, is_certain, .. } = &GROUPS[first?];
    Some(Judgement { by: *by, is_certain: *is_certain })
}

/// Whether these words are only a greeting, as of a person who waits for the caller.
pub(super) fn is_hello(words: &[String]) -> bool {
    !words.is_empty() && words.len() <= 6 && words.iter().all(|word| HELLO.contains(&word.as_str()))
}

/// Figures in words. Several in a row are a telephone number, not a key.
const FIGURES: &[&str] = &[
    "zero", "oh", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "null", "eins", "zwei",
    "zwo", "drei", "vier", "funf", "sechs", "sieben", "acht", "neun", "un", "deux", "trois", "quatre", "cinq", "sept",
    "huit", "neuf", "cero", "uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve",
];
/// What a telephone number becomes.
const NUMBER: &str = "#";

/// The words of a transcript: small letters, without accents, apostrophes and punctuation; a telephone number is one.
pub(super) fn words_of(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in plain_words(text) {
        let is_of_number = is_figure(&word) || is_number(&word);
        let follows = is_of_number && words.last().is_some_and(|last| is_figure(last) || is_number(last));
        if follows {
            words.pop();
        }
        let becomes_number = follows || is_number(&word);
        words.push(if becomes_number { NUMBER.to_owned() } else { word });
    }
    words
}

/// Whether a word is a figure, in letters or not.
pub(super) fn is_figure(word: &str) -> bool {
    FIGURES.contains(&word) || word.len() == 1 && word.starts_with(|c: char| c.is_ascii_digit())
}

fn is_number(word: &str) -> bool {
    word == NUMBER || word.len() > 1 && word.chars().all(|c| c.is_ascii_digit())
}

fn plain_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '\u{2019}')) {
        let word: String = part.chars().filter(|c| c.is_alphanumeric()).flat_map(plain).collect();
        if !word.is_empty() {
            words.push(word);
        }
    }
    words
}

/// A letter without its accent, small.
fn plain(letter: char) -> impl Iterator<Item = char> {
    let plain = match letter.to_lowercase().next().unwrap_or(letter) {
        'à' | 'â' | 'á' | 'ä' | 'ã' => 'a',
        'é' | 'è' | 'ê' | 'ë' => 'e',
        'í' | 'î' | 'ï' => 'i',
        'ó' | 'ô' | 'ö' | 'õ' => 'o',
        'ú' | 'ù' | 'û' | 'ü' => 'u',
        'ç' => 'c',
        'ñ' => 'n',
        other => other,
    };
    let is_sharp_s = plain == 'ß';
    std::iter::once(if is_sharp_s { 's' } else { plain }).chain(is_sharp_s.then_some('s'))
}

fn begins_with(words: &[String], elements: &[Element]) -> bool {
    match elements.split_first() {
        None => true,
        Some((Element::Skip, rest)) => (0..=MAX_SKIPPED.min(words.len())).any(|n| begins_with(&words[n..], rest)),
        Some((Element::Word { words: any, is_optional }, rest)) => {
            let is_it = words.first().is_some_and(|word| any.contains(&word.as_str()));
            is_it && begins_with(&words[1..], rest) || *is_optional && begins_with(words, rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_without_case_accents_and_punctuation() {
        assert_eq!(words_of("You've reached Zoë: ¿Größe?"), ["youve", "reached", "zoe", "grosse"]);
        assert_eq!(words_of(" ... "), [] as [&str; 0]);
        assert_eq!(
            words_of("dial nine one one or 555-0100, then press 1"),
            ["dial", "#", "or", "#", "then", "press", "1"]
        );
    }

    #[test]
    fn phrases_have_alternatives_gaps_and_words_that_may_be_missing() {
        let is_in = |text: &str, phrase: &'static str| {
            let elements: Vec<Element> = phrase.split(' ').map(Element::of).collect();
            let words = words_of(text);
            (0..words.len()).any(|at| begins_with(&words[at..], &elements))
        };
        assert!(is_in("please wait for the beep", "for the beep|tone"));
        assert!(!is_in("please wait for it", "for the beep|tone"));
        assert!(is_in("leave us a message", "leave * message"));
        assert!(!is_in("leave me alone and never send another message", "leave * message"));
        assert!(is_in("press one", "press the? one") && is_in("press the one", "press the? one"));
    }

    #[test]
    fn an_offer_to_take_a_message_is_a_persons() {
        let judged = |text: &str| judge(&words_of(text)).map(|judgement| judgement.by);
        assert_eq!(judged("He's out. Can I take a message?"), Some(AnsweredBy::Person));
        assert_eq!(judged("I'm out. Leave a message."), Some(AnsweredBy::Voicemail));
        assert_eq!(judged("For sales, press one."), Some(AnsweredBy::Ivr));
        assert_eq!(judged("Say your name and why you're calling."), Some(AnsweredBy::Screening));
        assert_eq!(judged("Bakery Miller."), None);
        assert!(is_hello(&words_of("Yes, hello?")) && !is_hello(&words_of("Bakery Miller.")));
    }
}
