//! How the sentences of a language end: its abbreviations, and whether a number with a dot is an ordinal.
//!
//! `boundary` asks for each word with a dot. The lists are short on purpose: of two mistakes, a sentence that is spoken
//! with the next one is the smaller.

/// The abbreviations of a language, in lower case and without their last dot. Single letters ("z. B.", "т. е.") are known
/// by their form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentences {
    /// A name, a number or more of the sentence follows.
    never_ends: &'static [&'static str],
    /// Their dot ends a sentence only if a capital follows.
    capital_ends: &'static [&'static str],
    /// "5. November": a number of one or two digits, and a Roman numeral, with a dot end nothing.
    has_ordinals: bool,
    is_english: bool,
}

/// What a dot after a word may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DotMeaning {
    /// Part of the word.
    Abbreviation,
    /// The same, unless a capital follows.
    UnlessCapital,
    /// The end of a sentence.
    End,
}

impl Default for Sentences {
    fn default() -> Self {
        Self::ENGLISH
    }
}

impl Sentences {
    pub(super) const ENGLISH: Self = Self {
        never_ends: &[
            "adm", "apr", "approx", "aug", "ave", "bros", "ca", "capt", "cf", "cmdr", "col", "cu", "dec", "dr", "e.g",
            "eq", "ext", "feb", "fig", "figs", "fl", "gen", "gov", "hon", "i.e", "jan", "lt", "maj", "messrs", "mr",
            "mrs", "ms", "mt", "nov", "oct", "pp", "prof", "rep", "rev", "sen", "sep", "sept", "sgt", "sq", "st",
            "vol", "vs",
        ],
        capital_ends: &[
            "a.m", "apt", "blvd", "co", "corp", "dept", "est", "etc", "ft", "hr", "hrs", "hwy", "inc", "jr", "kg",
            "km", "lb", "lbs", "ln", "ltd", "min", "oz", "p.m", "rd", "sr",
        ],
        has_ordinals: false,
        is_english: true,
    };

    const GERMAN: Self = Self {
        never_ends: &[
            "abb", "abs", "apr", "aug", "bd", "betr", "bspw", "bzgl", "ca", "dez", "dipl", "dr", "evtl", "feb", "fr",
            "geb", "gem", "ggf", "hr", "hrn", "ing", "inkl", "jan", "jr", "kap", "lt", "mind", "mio", "mrd", "nov",
            "nr", "okt", "prof", "sept", "sog", "sr", "std", "tel", "tsd", "u.a", "ungef", "vgl", "zzgl",
        ],
        capital_ends: &["bzw", "etc", "min", "sek", "str", "usf", "usw"],
        has_ordinals: true,
        is_english: false,
    };

    const FRENCH: Self = Self {
        never_ends: &[
            "av", "boul", "bd", "cf", "chap", "dr", "env", "fig", "janv", "févr", "juil", "m", "me", "mgr", "mlle",
            "mm", "mme", "no", "nov", "oct", "p", "pp", "pr", "prof", "sept", "st", "ste", "tél", "vol",
        ],
        capital_ends: &["etc", "min", "sec"],
        has_ordinals: false,
        is_english: false,
    };

    const SPANISH: Self = Self {
        never_ends: &[
            "aprox", "art", "av", "avda", "cap", "cf", "cía", "dña", "dr", "dra", "dres", "ee", "ej", "fig", "gral",
            "ing", "izq", "lic", "mons", "núm", "pág", "págs", "prof", "profa", "sr", "sra", "sras", "sres", "srta",
            "sta", "sto", "tel", "ud", "uds", "vd", "vds", "vol",
        ],
        capital_ends: &["etc", "min", "seg", "uu"],
        has_ordinals: false,
        is_english: false,
    };

    const PORTUGUESE: Self = Self {
        never_ends: &[
            "aprox", "art", "av", "cap", "dr", "dra", "drs", "eng", "exa", "fig", "gen", "núm", "pág", "págs", "prof",
            "profa", "profª", "rev", "sr", "sra", "sras", "srs", "srta", "sta", "sto", "tel", "vol",
        ],
        capital_ends: &["etc", "min", "ltda", "seg"],
        has_ordinals: false,
        is_english: false,
    };

    const ITALIAN: Self = Self {
        never_ends: &[
            "art", "avv", "ca", "cap", "cav", "cfr", "dott", "dr", "fig", "geom", "ing", "mons", "on", "pag", "pagg",
            "prof", "profssa", "rag", "sig", "sigg", "sigra", "sig.ra", "dott.ssa", "prof.ssa", "spett", "tel", "vol",
        ],
        capital_ends: &["ecc", "min", "sec"],
        has_ordinals: false,
        is_english: false,
    };

    const DUTCH: Self = Self {
        never_ends: &[
            "afb", "art", "bijv", "blz", "bv", "ca", "dhr", "dr", "drs", "evt", "fig", "gem", "incl", "ing", "ir",
            "jan", "jhr", "max", "mej", "mevr", "mr", "mw", "nl", "nov", "nr", "okt", "prof", "resp", "sept", "sint",
            "st", "tel", "vgl", "zgn",
        ],
        capital_ends: &["enz", "etc", "min", "sec"],
        has_ordinals: false,
        is_english: false,
    };

    const POLISH: Self = Self {
        never_ends: &[
            "al", "art", "dr", "gen", "godz", "hab", "im", "inż", "ks", "mgr", "m.in", "min", "nr", "np", "os", "pl",
            "płk", "pn", "por", "prof", "pt", "rys", "st", "str", "św", "tab", "tel", "tj", "tys", "tzw", "ul", "woj",
            "ww", "zob",
        ],
        capital_ends: &["itd", "itp", "r", "w", "zł"],
        has_ordinals: true,
        is_english: false,
    };

    const RUSSIAN: Self = Self {
        never_ends: &[
            "акад",
            "бул",
            "гл",
            "гос",
            "доц",
            "им",
            "инж",
            "кв",
            "корп",
            "мин",
            "млн",
            "млрд",
            "напр",
            "обл",
            "оз",
            "пер",
            "пл",
            "пос",
            "пр",
            "просп",
            "проф",
            "рис",
            "св",
            "сек",
            "см",
            "ср",
            "стр",
            "табл",
            "тел",
            "тов",
            "тыс",
            "ул",
            "вул",
            "чел",
        ],
        capital_ends: &["вв", "гг", "др", "коп", "руб", "т.д", "т.п"],
        has_ordinals: false,
        is_english: false,
    };

    const CZECH: Self = Self {
        never_ends: &[
            "bc", "čl", "dr", "gen", "ing", "jr", "kap", "mgr", "mj", "mudr", "judr", "phdr", "např", "obr", "odst",
            "popř", "prof", "příp", "resp", "sl", "sr", "st", "str", "sv", "tab", "tel", "tj", "tř", "tzv", "ul",
        ],
        capital_ends: &["apod", "atd", "kč", "min", "sk"],
        has_ordinals: true,
        is_english: false,
    };

    const NORDIC: Self = Self {
        never_ends: &[
            "bl.a", "ca", "dr", "eks", "f.eks", "fig", "fl", "fr", "hr", "inkl", "jan", "jf", "kap", "kl", "maks",
            "max", "mio", "mrd", "mill", "nr", "prof", "sept", "skt", "st", "t.ex", "tel", "tlf", "vol",
        ],
        capital_ends: &["etc", "min", "m.m", "osv", "sek"],
        has_ordinals: true,
        is_english: false,
    };

    /// Its ordinals have no dot: "5 november", "3:e".
    const SWEDISH: Self = Self { has_ordinals: false, ..Self::NORDIC };

    /// Languages with ordinals of a number and a dot, of whose abbreviations none are listed.
    const WITH_ORDINALS: Self = Self { never_ends: &["dr", "prof", "st"], capital_ends: &[], ..Self::NORDIC };

    /// Any other language.
    const PLAIN: Self = Self { has_ordinals: false, ..Self::WITH_ORDINALS };

    /// The sentences of a language, by its ISO 639 code in lower case.
    pub(super) fn of(primary: &str) -> Self {
        match primary {
            "en" => Self::ENGLISH,
            "de" | "gsw" | "lb" => Self::GERMAN,
            "fr" => Self::FRENCH,
            "es" | "ca" | "gl" => Self::SPANISH,
            "pt" => Self::PORTUGUESE,
            "it" => Self::ITALIAN,
            "nl" | "af" => Self::DUTCH,
            "pl" => Self::POLISH,
            "be" | "ru" | "uk" => Self::RUSSIAN,
            "cs" | "sk" => Self::CZECH,
            "da" | "nb" | "nn" | "no" => Self::NORDIC,
            "sv" => Self::SWEDISH,
            "bs" | "et" | "fi" | "hr" | "hu" | "is" | "lv" | "sl" | "sr" | "tr" => Self::WITH_ORDINALS,
            _ => Self::PLAIN,
        }
    }

    /// Whether a number with a dot is an ordinal.
    pub(super) fn has_ordinals(self) -> bool {
        self.has_ordinals
    }

    /// Whether nouns, and so the names of months, begin with a capital.
    pub(super) fn has_capital_nouns(self) -> bool {
        self == Self::GERMAN
    }

    /// What a dot after `word` is; `before`: the word before it.
    pub(super) fn dotted(self, word: &str, before: &str) -> DotMeaning {
        let lower = word.to_lowercase();
        let is_roman = word.bytes().all(|b| b"IVXLCDM".contains(&b));
        let is_ordinal = word.len() <= 2 && word.bytes().all(|b| b.is_ascii_digit()) || is_roman;
        // "The Jr. Miller" goes on where "Smith Jr. He" may end.
        let is_prefix = self.is_english && matches!(lower.as_str(), "jr" | "sr") && !is_name(before);
        match lower.as_str() {
            _ if self.has_ordinals && is_ordinal => DotMeaning::Abbreviation,
            "i" if self.is_english => DotMeaning::UnlessCapital,
            _ if is_prefix || self.never_ends.contains(&lower.as_str()) => DotMeaning::Abbreviation,
            _ if self.capital_ends.contains(&lower.as_str()) || is_degree(word) => DotMeaning::UnlessCapital,
            _ => DotMeaning::End,
        }
    }
}

/// Whether the dot behind `word` ends a sentence of an English text that continues with `after`. `before`: the word
/// before it. For engines that divide spoken forms into sentences.
pub fn dot_ends_sentence(word: &str, before: &str, after: &str) -> bool {
    let is_mark = |c: char| !c.is_alphanumeric();
    let word = word.trim_start_matches(is_mark);
    match Sentences::ENGLISH.dotted(word, before) {
        DotMeaning::Abbreviation => false,
        DotMeaning::UnlessCapital => after.trim_start_matches(is_mark).starts_with(char::is_uppercase),
        DotMeaning::End => !is_initials(word),
    }
}

/// Whether a word, without its last dot, is an initial or several: "J", "U.S".
pub(super) fn is_initials(word: &str) -> bool {
    word.split('.').all(|part| part.chars().count() == 1 && part.chars().all(char::is_alphabetic))
}

/// Whether a word, without its last dot, is a degree or an initial with a name: "Ph.D", "J.Smith".
pub(super) fn is_degree(word: &str) -> bool {
    let is_capitalized = |part: &str| part.starts_with(char::is_uppercase) && part.chars().all(char::is_alphabetic);
    let n_initials = word.split('.').filter(|part| part.chars().count() == 1).count();
    n_initials > 0 && n_initials < word.split('.').count() && word.split('.').all(is_capitalized)
}

/// Whether a word may be a name: it has a capital, and is no other word that stands before names or begins a sentence.
pub(super) fn is_name(word: &str) -> bool {
    const NO_NAMES: [&str; 66] = [
        "A", "About", "After", "Along", "An", "And", "Around", "As", "At", "Because", "Before", "Behind", "Between",
        "But", "By", "Downtown", "Explore", "For", "From", "Greater", "Her", "His", "Historic", "How", "If", "In",
        "Inside", "Into", "Is", "Its", "Leaving", "Like", "My", "Near", "Of", "On", "Or", "Our", "Outside", "Over",
        "Past", "See", "Since", "So", "That", "The", "Their", "Then", "These", "This", "Through", "To", "Toward",
        "Towards", "Under", "Until", "Via", "Visit", "Visiting", "Was", "When", "Where", "While", "With", "Within",
        "Your",
    ];
    word.starts_with(char::is_uppercase) && !NO_NAMES.contains(&word)
}
