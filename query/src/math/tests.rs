use libm::{frexp, ldexp};

use super::*;

/// Each line has the name of a function, the bits of its arguments, and the bits of its result.
const GOLDEN: &str = include_str!("golden.txt");

fn number(text: &str) -> f64 {
    if text == "nan" {
        f64::NAN
    } else {
        f64::from_bits(u64::from_str_radix(text, 16).unwrap())
    }
}

fn unary_function(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "exp" => exp,
        "exp2" => exp2,
        "ln" => ln,
        "log2" => log2,
        "log10" => log10,
        "sin" => sin,
        "cos" => cos,
        "tan" => tan,
        "asin" => asin,
        "acos" => acos,
        "atan" => atan,
        "sinh" => sinh,
        "cosh" => cosh,
        "tanh" => tanh,
        "asinh" => asinh,
        "acosh" => acosh,
        "atanh" => atanh,
        _ => return None,
    })
}

fn apply(name: &str, arguments: &[f64]) -> f64 {
    match (unary_function(name), arguments) {
        (Some(function), [x]) => function(*x),
        (None, [x, y]) => {
            if name == "pow" {
                pow(*x, *y)
            } else {
                atan2(*x, *y)
            }
        }
        _ => panic!("{name} of {arguments:?}"),
    }
}

#[test]
fn results_have_the_bits_of_go() {
    let mut different = Vec::new();
    for line in GOLDEN.lines() {
        let (name, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<f64> = numbers.split(' ').map(number).collect();
        let (expected, arguments) = numbers.split_last().unwrap();
        let result = apply(name, arguments);
        if result.to_bits() != expected.to_bits() && !(result.is_nan() && expected.is_nan()) {
            different.push(format!(
                "{name} of {arguments:?} is {result:e}, not {expected:e}"
            ));
        }
    }
    assert!(GOLDEN.lines().count() > 1000);
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different[..different.len().min(40)].join("\n")
    );
}

#[test]
fn a_number_is_split_and_scaled_back() {
    for value in [1.0, -0.75, 5e-324, f64::MIN_POSITIVE, f64::MAX, -1e-310] {
        let (fraction, power) = frexp(value);
        assert!((0.5..1.0).contains(&fraction.abs()));
        assert_eq!(ldexp(fraction, power), value);
    }
    assert_eq!(
        (ldexp(0.5, 3000), ldexp(-0.5, -3000)),
        (f64::INFINITY, -0.0)
    );
}
