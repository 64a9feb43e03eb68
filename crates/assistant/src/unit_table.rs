//! The units of measure: names and what each is in its dimension's base unit.
//!
//! Factors are the exact definitions of the international yard and pound (1959) and of the SI; US measures of volume.

/// What a unit measures. The base unit stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    /// metre
    Length,
    /// gram
    Mass,
    /// litre
    Volume,
    /// second
    Time,
    /// metre a second
    Speed,
    /// square metre
    Area,
    /// byte
    Data,
    /// kelvin; these units have an offset too
    Temperature,
    /// joule
    Energy,
    /// watt
    Power,
    /// pascal
    Pressure,
    /// radian
    Angle,
    /// one; dozens and scores
    Count,
}

impl Dimension {
    pub fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Mass => "weight",
            Self::Volume => "volume",
            Self::Time => "time",
            Self::Speed => "speed",
            Self::Area => "area",
            Self::Data => "data",
            Self::Temperature => "temperature",
            Self::Energy => "energy",
            Self::Power => "power",
            Self::Pressure => "pressure",
            Self::Angle => "angles",
            Self::Count => "number",
        }
    }
}

/// One unit.
#[derive(Debug)]
pub(super) struct Unit {
    pub dimension: Dimension,
    /// How many base units one is.
    pub factor: f64,
    pub singular: &'static str,
    pub plural: &'static str,
    /// Other names, separated by `|`.
    pub aliases: &'static str,
    /// Short forms, units only right after a number: `10 m`, `5 in`.
    pub short: &'static str,
}

const fn unit(dimension: Dimension, factor: f64, names: [&'static str; 4]) -> Unit {
    let [singular, plural, aliases, short] = names;
    Unit { dimension, factor, singular, plural, aliases, short }
}

use Dimension::*;

/// All units; longer names are looked for first, so that `square feet` is not feet.
pub(super) const UNITS: &[Unit] = &[
    unit(Length, 1.0, ["meter", "meters", "metre|metres|meet her|meat her|meters long", "m"]),
    unit(
        Length,
        1000.0,
        [
            "kilometer",
            "kilometers",
            "kilometre|kilometres|kilo meter|kilo meters|kilo metres|km|kms|kilometer long|k m|klick|klicks",
            "",
        ],
    ),
    unit(
        Length,
        0.01,
        [
            "centimeter",
            "centimeters",
            "centimetre|centimetres|centi meter|centi meters|cm|cms|c m|sent a meter|sent a meters|sent emitters|sandy meters",
            "",
        ],
    ),
    unit(
        Length,
        0.001,
        ["millimeter", "millimeters", "millimetre|millimetres|milli meter|milli meters|mm|mill emitters|m m", ""],
    ),
    unit(Length, 0.1, ["decimeter", "decimeters", "decimetre|decimetres", "dm"]),
    unit(Length, 1e-6, ["micrometer", "micrometers", "micron|microns|micrometre|micrometres", "um"]),
    unit(Length, 1e-9, ["nanometer", "nanometers", "nanometre|nanometres|nano meter|nano meters", "nm"]),
    unit(Length, 0.0254, ["inch", "inches", "inch's", "in"]),
    unit(Length, 0.3048, ["foot", "feet", "foots|feat|ft", ""]),
    unit(Length, 0.9144, ["yard", "yards", "yd|yds", ""]),
    unit(Length, 1609.344, ["mile", "miles", "mi", ""]),
    unit(Length, 1852.0, ["nautical mile", "nautical miles", "sea mile|sea miles", ""]),
    unit(Length, 9.460_730_472_580_8e15, ["light year", "light years", "lightyear|lightyears", ""]),
    unit(Length, 149_597_870_700.0, ["astronomical unit", "astronomical units", "", "au"]),
    unit(Length, 201.168, ["furlong", "furlongs", "", ""]),
    unit(Length, 1.8288, ["fathom", "fathoms", "", ""]),
    unit(Mass, 1.0, ["gram", "grams", "gramme|grammes|graham|grahams", "g"]),
    unit(
        Mass,
        1000.0,
        ["kilogram", "kilograms", "kilo|kilos|kilogramme|kilogrammes|kilo gram|kilo grams|kg|kgs|k g", ""],
    ),
    unit(Mass, 0.001, ["milligram", "milligrams", "milligramme|milligrammes|mg", ""]),
    unit(Mass, 1e6, ["metric ton", "metric tons", "tonne|tonnes|metric tonne|metric tonnes", "t"]),
    unit(Mass, 907_184.74, ["ton", "tons", "short ton|short tons|us ton|us tons|tun", ""]),
    unit(Mass, 453.592_370, ["pound", "pounds", "lb|lbs|pounds weight", ""]),
    unit(Mass, 28.349_523_125, ["ounce", "ounces", "oz|ozs", ""]),
    unit(Mass, 6_350.293_18, ["stone", "stone", "stones", "st"]),
    unit(Mass, 0.2, ["carat", "carats", "", ""]),
    unit(Volume, 1.0, ["liter", "liters", "litre|litres|leader|leaders|lead her", "l"]),
    unit(
        Volume,
        0.001,
        [
            "milliliter",
            "milliliters",
            "millilitre|millilitres|ml|milli liter|milli liters|milli litre|milli litres|mill",
            "",
        ],
    ),
    unit(Volume, 0.01, ["centiliter", "centiliters", "centilitre|centilitres", "cl"]),
    unit(Volume, 0.1, ["deciliter", "deciliters", "decilitre|decilitres", "dl"]),
    unit(Volume, 3.785_411_784, ["gallon", "gallons", "gal|gals|us gallon|us gallons", ""]),
    unit(Volume, 0.946_352_946, ["quart", "quarts", "qt|qts|court|courts", ""]),
    unit(Volume, 0.473_176_473, ["pint", "pints", "pt|pts", ""]),
    unit(Volume, 0.236_588_236_5, ["cup", "cups", "", ""]),
    unit(Volume, 0.029_573_529_562_5, ["fluid ounce", "fluid ounces", "fl oz", ""]),
    unit(Volume, 0.014_786_764_781_25, ["tablespoon", "tablespoons", "tbsp|table spoon|table spoons", ""]),
    unit(Volume, 0.004_928_921_593_75, ["teaspoon", "teaspoons", "tsp|tea spoon|tea spoons", ""]),
    unit(Volume, 1000.0, ["cubic meter", "cubic meters", "cubic metre|cubic metres|meters cubed|metres cubed", ""]),
    unit(Volume, 0.001, ["cubic centimeter", "cubic centimeters", "cubic centimetre|cubic centimetres|cc", ""]),
    unit(Volume, 28.316_846_592, ["cubic foot", "cubic feet", "feet cubed", ""]),
    unit(Volume, 0.016_387_064, ["cubic inch", "cubic inches", "inches cubed", ""]),
    unit(Volume, 158.987_294_928, ["barrel of oil", "barrels of oil", "", ""]),
    unit(Time, 1.0, ["second", "seconds", "sec|secs", "s"]),
    unit(Time, 0.001, ["millisecond", "milliseconds", "milli second|milli seconds", "ms"]),
    unit(Time, 1e-6, ["microsecond", "microseconds", "", ""]),
    unit(Time, 1e-9, ["nanosecond", "nanoseconds", "", ""]),
    unit(Time, 60.0, ["minute", "minutes", "min|mins", ""]),
    unit(Time, 3600.0, ["hour", "hours", "hr|hrs|our|ours", "h"]),
    unit(Time, 86_400.0, ["day", "days", "", "d"]),
    unit(Time, 604_800.0, ["week", "weeks", "weak|weeks time", ""]),
    unit(Time, 1_209_600.0, ["fortnight", "fortnights", "", ""]),
    unit(Time, MONTH, ["month", "months", "", ""]),
    unit(Time, YEAR, ["year", "years", "yr|yrs", ""]),
    unit(Time, 10.0 * YEAR, ["decade", "decades", "decayed", ""]),
    unit(Time, 100.0 * YEAR, ["century", "centuries", "", ""]),
    unit(Time, 1000.0 * YEAR, ["millennium", "millennia", "millenniums|millenium", ""]),
    unit(
        Speed,
        1.0,
        [
            "meter per second",
            "meters per second",
            "m / s|metres per second|meters a second|meter a second|metre per second|m per s",
            "",
        ],
    ),
    unit(
        Speed,
        1000.0 / 3600.0,
        [
            "kilometer per hour",
            "kilometers per hour",
            "km / h|kmh|kph|km per hour|kilometers an hour|kilometres per hour|kilometres an hour|kilometer an hour|kilometre per hour|kilometers in an hour",
            "",
        ],
    ),
    unit(
        Speed,
        0.447_04,
        ["mile per hour", "miles per hour", "mph|miles an hour|mile an hour|m p h|miles in an hour", ""],
    ),
    unit(Speed, 0.3048, ["foot per second", "feet per second", "feet a second|ft / s", ""]),
    unit(Speed, 1852.0 / 3600.0, ["knot", "knots", "nots", ""]),
    unit(
        Speed,
        1000.0,
        ["kilometer per second", "kilometers per second", "km / s|kilometers a second|kilometres per second", ""],
    ),
    unit(
        Area,
        1.0,
        [
            "square meter",
            "square meters",
            "square metre|square metres|sq m|m squared|meters squared|metres squared|meter squared",
            "sqm",
        ],
    ),
    unit(
        Area,
        1e6,
        [
            "square kilometer",
            "square kilometers",
            "square kilometre|square kilometres|sq km|kilometers squared|km squared",
            "",
        ],
    ),
    unit(
        Area,
        1e-4,
        [
            "square centimeter",
            "square centimeters",
            "square centimetre|square centimetres|sq cm|centimeters squared|cm squared",
            "",
        ],
    ),
    unit(Area, 0.092_903_04, ["square foot", "square feet", "sq ft|feet squared|sqft", ""]),
    unit(Area, 6.4516e-4, ["square inch", "square inches", "sq in|inches squared", ""]),
    unit(Area, 0.836_127_36, ["square yard", "square yards", "sq yd|yards squared", ""]),
    unit(Area, 2_589_988.110_336, ["square mile", "square miles", "sq mi|miles squared", ""]),
    unit(Area, 4_046.856_422_4, ["acre", "acres", "acher|achers|aker|akers", ""]),
    unit(Area, 10_000.0, ["hectare", "hectares", "hectors|hector|heck tears|heck tear", "ha"]),
    unit(Data, 1.0, ["byte", "bytes", "bite|bites", ""]),
    unit(Data, 0.125, ["bit", "bits", "", ""]),
    unit(Data, 1e3, ["kilobyte", "kilobytes", "kb|kilo byte|kilo bytes|kilo bites|kilo bite", ""]),
    unit(Data, 1e6, ["megabyte", "megabytes", "mb|mega byte|mega bytes|mega bites|mega bite|megs|meg", ""]),
    unit(Data, 1e9, ["gigabyte", "gigabytes", "gb|giga byte|giga bytes|giga bites|giga bite|gigs|gig", ""]),
    unit(Data, 1e12, ["terabyte", "terabytes", "tb|tera byte|tera bytes|tara bytes|tara byte", ""]),
    unit(Data, 1e15, ["petabyte", "petabytes", "pb", ""]),
    unit(Data, 1024.0, ["kibibyte", "kibibytes", "kib", ""]),
    unit(Data, 1_048_576.0, ["mebibyte", "mebibytes", "mib", ""]),
    unit(Data, 1_073_741_824.0, ["gibibyte", "gibibytes", "gib", ""]),
    unit(Data, 125.0, ["kilobit", "kilobits", "", ""]),
    unit(Data, 125_000.0, ["megabit", "megabits", "", ""]),
    unit(Data, 125_000_000.0, ["gigabit", "gigabits", "", ""]),
    unit(
        Temperature,
        1.0,
        [
            "degree Celsius",
            "degrees Celsius",
            "celsius|centigrade|degree celsius|degrees celsius|degrees centigrade|celcius|degrees celcius|sell see us|celsius degrees|selsius|degree centigrade|degrees c|cellsius|cell see us",
            "c",
        ],
    ),
    unit(
        Temperature,
        5.0 / 9.0,
        [
            "degree Fahrenheit",
            "degrees Fahrenheit",
            "fahrenheit|degree fahrenheit|degrees fahrenheit|farenheit|fahrenheit degrees|degrees farenheit|fair and height|faren height|degrees f|fahrenheits|far and height",
            "f",
        ],
    ),
    unit(Temperature, 1.0, ["kelvin", "kelvin", "kelvins|degrees kelvin|calvin|degree kelvin", "k"]),
    unit(Energy, 1.0, ["joule", "joules", "jewel|jewels", "j"]),
    unit(Energy, 1000.0, ["kilojoule", "kilojoules", "kj|kilo joules", ""]),
    unit(Energy, 4184.0, ["calorie", "calories", "kilocalorie|kilocalories|kcal", ""]),
    unit(Energy, 3.6e6, ["kilowatt hour", "kilowatt hours", "kwh", ""]),
    unit(Power, 1.0, ["watt", "watts", "", "w"]),
    unit(Power, 1000.0, ["kilowatt", "kilowatts", "kw|kilo watt|kilo watts|kilo what", ""]),
    unit(Power, 1e6, ["megawatt", "megawatts", "mw", ""]),
    unit(Power, 745.699_871_582_270_2, ["horsepower", "horsepower", "horse power|hp", ""]),
    unit(Pressure, 1.0, ["pascal", "pascals", "", "pa"]),
    unit(Pressure, 100.0, ["hectopascal", "hectopascals", "hpa|millibar|millibars", ""]),
    unit(Pressure, 1e5, ["bar", "bars", "bar of pressure", ""]),
    unit(Pressure, 101_325.0, ["atmosphere", "atmospheres", "atm", ""]),
    unit(Pressure, 6_894.757_293_168, ["pound per square inch", "pounds per square inch", "psi|p s i", ""]),
    unit(Angle, 1.0, ["radian", "radians", "", "rad"]),
    unit(Angle, std::f64::consts::PI / 180.0, ["degree", "degrees", "", "deg"]),
    unit(Count, 12.0, ["dozen", "dozens", "", ""]),
];

/// 365 days: what people count with. The calendar skill knows leap years.
const YEAR: f64 = 31_536_000.0;
const MONTH: f64 = YEAR / 12.0;

impl Unit {
    /// The value in base units.
    pub fn to_base(&self, value: f64) -> f64 {
        value * self.factor + self.offset()
    }

    /// The value of so many base units.
    pub fn of_base(&self, base: f64) -> f64 {
        (base - self.offset()) / self.factor
    }

    fn offset(&self) -> f64 {
        match self.singular {
            "degree Celsius" => 273.15,
            "degree Fahrenheit" => 273.15 - 32.0 * 5.0 / 9.0,
            _ => 0.0,
        }
    }

    /// The name that goes with a number.
    pub fn named(&self, value: f64) -> &'static str {
        if value.abs() == 1.0 { self.singular } else { self.plural }
    }
}
