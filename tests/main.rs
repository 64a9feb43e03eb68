
mod echo;
