//! Scrape targets and rules: Varve has none, so these lists are empty.

pub(crate) mod rules;
pub(crate) mod targets;
