//! Scrape targets: Varve has none, so these lists are empty.

pub(crate) mod targets;
