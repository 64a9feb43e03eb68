//! Word lists used by the chunker and the normalizer.

/// Abbreviations whose dot never ends a sentence: a name or a number follows.
pub(super) const NEVER_ENDS: [&str; 44] = [
    "adm", "apr", "approx", "aug", "ave", "bros", "ca", "capt", "cf", "cmdr", "col", "dec", "dr", "e.g", "eq", "feb",
    "fig", "figs", "gen", "gov", "hon", "i.e", "jan", "lt", "maj", "messrs", "mr", "mrs", "ms", "mt", "nov", "oct",
    "pp", "prof", "rep", "rev", "sen", "sep", "sept", "sgt", "st", "vol", "vs", "z.b",
];

/// Abbreviations whose dot ends a sentence only if a capital follows.
pub(super) const CAPITAL_ENDS: [&str; 22] = [
    "a.m", "blvd", "co", "corp", "dept", "est", "etc", "ft", "hr", "hrs", "inc", "jr", "kg", "km", "lb", "lbs", "ltd",
    "min", "oz", "p.m", "rd", "sr",
];

/// Function words, before which a phrase may end.
pub(super) const FUNCTION_WORDS: [&str; 26] = [
    "and", "because", "but", "by", "for", "from", "if", "in", "into", "of", "on", "or", "since", "so", "than", "that",
    "though", "through", "to", "until", "when", "where", "which", "while", "who", "with",
];

/// Units: symbol, singular, plural. Recognized only after a number.
pub(super) const UNITS: [(&str, &str, &str); 62] = [
    ("km/h", "kilometer per hour", "kilometers per hour"),
    ("kph", "kilometer per hour", "kilometers per hour"),
    ("m/s", "meter per second", "meters per second"),
    ("m/s²", "meter per second squared", "meters per second squared"),
    ("mph", "mile per hour", "miles per hour"),
    ("km²", "square kilometer", "square kilometers"),
    ("km2", "square kilometer", "square kilometers"),
    ("m²", "square meter", "square meters"),
    ("m2", "square meter", "square meters"),
    ("m³", "cubic meter", "cubic meters"),
    ("cm²", "square centimeter", "square centimeters"),
    ("cm³", "cubic centimeter", "cubic centimeters"),
    ("km", "kilometer", "kilometers"),
    ("m", "meter", "meters"),
    ("dm", "decimeter", "decimeters"),
    ("cm", "centimeter", "centimeters"),
    ("mm", "millimeter", "millimeters"),
    ("µm", "micrometer", "micrometers"),
    ("μm", "micrometer", "micrometers"),
    ("nm", "nanometer", "nanometers"),
    ("mi", "mile", "miles"),
    ("ft", "foot", "feet"),
    ("yd", "yard", "yards"),
    ("kg", "kilogram", "kilograms"),
    ("g", "gram", "grams"),
    ("mg", "milligram", "milligrams"),
    ("µg", "microgram", "micrograms"),
    ("lb", "pound", "pounds"),
    ("lbs", "pound", "pounds"),
    ("oz", "ounce", "ounces"),
    ("L", "liter", "liters"),
    ("l", "liter", "liters"),
    ("dl", "deciliter", "deciliters"),
    ("ml", "milliliter", "milliliters"),
    ("mL", "milliliter", "milliliters"),
    ("tsp", "teaspoon", "teaspoons"),
    ("tbsp", "tablespoon", "tablespoons"),
    ("h", "hour", "hours"),
    ("hr", "hour", "hours"),
    ("hrs", "hour", "hours"),
    ("min", "minute", "minutes"),
    ("mins", "minute", "minutes"),
    ("sec", "second", "seconds"),
    ("secs", "second", "seconds"),
    ("ms", "millisecond", "milliseconds"),
    ("KB", "kilobyte", "kilobytes"),
    ("kB", "kilobyte", "kilobytes"),
    ("MB", "megabyte", "megabytes"),
    ("GB", "gigabyte", "gigabytes"),
    ("TB", "terabyte", "terabytes"),
    ("Mbps", "megabit per second", "megabits per second"),
    ("Gbps", "gigabit per second", "gigabits per second"),
    ("Hz", "hertz", "hertz"),
    ("kHz", "kilohertz", "kilohertz"),
    ("MHz", "megahertz", "megahertz"),
    ("GHz", "gigahertz", "gigahertz"),
    ("W", "watt", "watts"),
    ("kW", "kilowatt", "kilowatts"),
    ("kWh", "kilowatt hour", "kilowatt hours"),
    ("V", "volt", "volts"),
    ("mAh", "milliamp hour", "milliamp hours"),
    ("kcal", "kilocalorie", "kilocalories"),
];

/// Currencies: sign, singular, plural, and the hundredth (empty if there is none).
pub(super) const CURRENCIES: [(char, &str, &str, &str); 6] = [
    ('$', "dollar", "dollars", "cent"),
    ('€', "euro", "euros", "cent"),
    ('£', "pound", "pounds", "penny"),
    ('¥', "yen", "yen", ""),
    ('₹', "rupee", "rupees", ""),
    ('₩', "won", "won", ""),
];

/// Signs that are always replaced by a word.
pub(super) const SIGNS: [(char, &str); 26] = [
    ('&', "and"),
    ('@', "at"),
    ('%', "percent"),
    ('‰', "per mille"),
    ('°', "degrees"),
    ('℃', "degrees Celsius"),
    ('℉', "degrees Fahrenheit"),
    ('+', "plus"),
    ('=', "equals"),
    ('≠', "is not equal to"),
    ('≈', "is about"),
    ('×', "times"),
    ('÷', "divided by"),
    ('±', "plus or minus"),
    ('≤', "at most"),
    ('≥', "at least"),
    ('→', "to"),
    ('⇒', "to"),
    ('²', "squared"),
    ('³', "cubed"),
    ('√', "square root of"),
    ('∞', "infinity"),
    ('π', "pi"),
    ('§', "section"),
    ('№', "number"),
    ('−', "minus"),
];

/// Single-character fractions.
pub(super) const FRACTIONS: [(char, &str); 9] = [
    ('½', "one half"),
    ('⅓', "one third"),
    ('⅔', "two thirds"),
    ('¼', "one quarter"),
    ('¾', "three quarters"),
    ('⅕', "one fifth"),
    ('⅛', "one eighth"),
    ('⅜', "three eighths"),
    ('⅝', "five eighths"),
];

/// Abbreviations and their spoken forms, dots included, in lower case.
pub(super) const SAID: [(&str, &str); 12] = [
    ("e.g.", "for example"),
    ("e.g", "for example"),
    ("i.e.", "that is"),
    ("i.e", "that is"),
    ("etc.", "et cetera"),
    ("etc", "et cetera"),
    ("vs.", "versus"),
    ("vs", "versus"),
    ("approx.", "approximately"),
    ("w/", "with"),
    ("w/o", "without"),
    ("24/7", "twenty four seven"),
];

/// Names of the months.
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
