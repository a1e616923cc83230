//! The closed vocabulary of the generated tasks.
//!
//! A small policy sees each of these as one token, so that a name or a value is copied in one step. No word of [`WORDS`] is
//! part of another or of a [`PHRASES`] word, so `grep` for a name finds that name only.

/// Names and values: of files, directories, keys and contents.
pub(super) const WORDS: &str = "\
    acorn amber anchor apple arrow aspen badge bamboo basil beach berry birch bison blaze board \
    bread brick bridge brook cabin camel candle canyon cargo cedar chalk cherry cider clay cliff \
    cloud clover cobalt comet copper coral cotton crane crow crystal daisy delta desert dew dolphin \
    dragon drum dune eagle ember falcon fern field fjord flame flint flute forest fox frost garden \
    garnet ginger glacier grape gravel grove gull harbor hazel heron hill honey horizon igloo island \
    ivory jade jasper jungle kettle lagoon lake lantern laurel lemon lily linen lotus lynx magnet \
    mango maple marble meadow melon mint mirror moon moss nectar nickel nutmeg oasis ocean olive \
    onyx orchid otter owl panda pearl pebble pepper pine planet plum pond poppy prairie quartz \
    rabbit raven reef rocket river robin ruby saddle saffron salmon sand shell silver spruce squid \
    stone storm sugar summit swan temple thunder tiger topaz torch tulip tundra valley velvet violet \
    walnut willow wolf yacht zebra";

/// Every other word of two letters or more: those of instructions, of commands, and of what
/// failed commands say (by far the most of it when words of commands are mixed up at random).
pub(super) const PHRASES: [&str; 3] = [
    "all alphabet and answer are check copy count different directory each file files find first fix \
    follow from go has hold in is it its lack largest last line lines make missing moved names next \
    no not number numbers of ok one order put reply report result run say says smallest stale start \
    store that the then to until value values wants was what which with word words write",
    "cat cp done echo exit grep head ls mkdir mv rm sed sh sort tail touch wc",
    "bash command found syntax error near unexpected token newline No such or cannot can read stat remove open create \
    reading input output exists File Is operand extra after expression char characters unterminated unknown \
    invalid option argument requires an ambiguous redirect Permission denied Usage OPTION PATTERNS FILE Try for more \
    help information",
];
