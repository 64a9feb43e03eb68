<<<<<<< HEAD
//! The scenarios: one file each, all in one binary.

mod dialog;
=======
//! The scenarios, one file each, linked into one binary.

mod configs;
mod layering;
>>>>>>> shell
