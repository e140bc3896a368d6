//! The labels of a group in the path of a push: `job/<job>{/<label>/<value>}`, as the README of the
//! Pushgateway describes them. A label whose name ends in `@base64` has its value in URL-safe base64,
//! since a path cannot contain a value that is empty or has a slash.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::percent_decode_str;

/// The suffix of the name of a label whose value is base64.
const BASE64: &str = "@base64";
/// Maximum number of labels of a group.
const LABELS_MAX: usize = 128;

/// Returns the labels of a group.
///
/// # Errors
/// The reason why the path is invalid.
pub(super) fn labels(path: &str) -> Result<Vec<(String, String)>, String> {
    let mut elements = path.split('/');
    let mut labels: Vec<(String, String)> = Vec::new();
    while let Some(name) = elements.next() {
        let Some(value) = elements.next() else {
            return Err(format!(
                "the path has a label {name:?} without a value: expected job/<job>, then pairs of label and value"
            ));
        };
        let label = label(name, value)?;
        if labels.iter().any(|(other, _)| *other == label.0) {
            return Err(format!("the path has the label {:?} twice", label.0));
        }
        if labels.len() == LABELS_MAX {
            return Err(format!("the path has more than {LABELS_MAX} labels"));
        }
        labels.push(label);
    }
    match labels.first() {
        Some((name, job)) if name == "job" && !job.is_empty() => Ok(labels),
        Some((name, _)) if name == "job" => Err("the job name is empty".to_owned()),
        _ => Err("the path does not begin with job/<job>".to_owned()),
    }
}

fn label(name: &str, value: &str) -> Result<(String, String), String> {
    let name = unescaped(name)?;
    let value = unescaped(value)?;
    let (name, value) = match name.strip_suffix(BASE64) {
        Some(name) => (name.to_owned(), from_base64(&value)?),
        None => (name, value),
    };
    if name.is_empty() || name.starts_with("__") {
        return Err(format!(
            "the path has the label name {name:?}, which is empty or reserved"
        ));
    }
    Ok((name, value))
}

fn unescaped(element: &str) -> Result<String, String> {
    let text = percent_decode_str(element).decode_utf8();
    let text = text.map_err(|_| format!("{element:?} in the path is not UTF-8"))?;
    Ok(text.into_owned())
}

fn from_base64(value: &str) -> Result<String, String> {
    let decoded = URL_SAFE_NO_PAD
        .decode(value.trim_end_matches('='))
        .map_err(|error| format!("invalid base64 {value:?} in the path: {error}"))?;
    String::from_utf8(decoded).map_err(|_| format!("the base64 {value:?} is not of UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: Result<&[(&str, &str)], &str>) {
        match (labels(path), expect) {
            (Ok(found), Ok(expect)) => {
                let expect: Vec<_> = expect
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect();
                assert_eq!(found, expect, "{path}");
            }
            (Err(reason), Err(part)) => assert!(reason.contains(part), "{path}: {reason}"),
            (found, expect) => panic!("{path}: {found:?}, expected {expect:?}"),
        }
    }

    /// The examples of the README of the Pushgateway.
    #[test]
    fn paths_of_the_pushgateway_are_read() {
        check("job/some_job", Ok(&[("job", "some_job")]));
        check(
            "job/some_job/instance/some_instance",
            Ok(&[("job", "some_job"), ("instance", "some_instance")]),
        );
        check(
            "job/directory_cleaner/path@base64/L3Zhci90bXA",
            Ok(&[("job", "directory_cleaner"), ("path", "/var/tmp")]),
        );
        check(
            "job/directory_cleaner/path@base64/L3Zhci90bXA=",
            Ok(&[("job", "directory_cleaner"), ("path", "/var/tmp")]),
        );
        check(
            "job/titan/name/%CE%A0%CF%81%CE%BF",
            Ok(&[("job", "titan"), ("name", "\u{3a0}\u{3c1}\u{3bf}")]),
        );
        check(
            "job@base64/YS9i/first_label@base64/=/second_label/foobar",
            Ok(&[
                ("job", "a/b"),
                ("first_label", ""),
                ("second_label", "foobar"),
            ]),
        );
        check("job/a/b%2Fc/d%2Fe", Ok(&[("job", "a"), ("b/c", "d/e")]));
    }

    #[test]
    fn invalid_paths_are_rejected_with_the_reason() {
        check("", Err("without a value"));
        check("job", Err("a label \"job\" without a value"));
        check("job/", Err("the job name is empty"));
        check("job@base64/=", Err("the job name is empty"));
        check("job/a/b", Err("a label \"b\" without a value"));
        check("job/a/", Err("a label \"\" without a value"));
        check("instance/a", Err("does not begin with job/<job>"));
        check("job/a/job/b", Err("the label \"job\" twice"));
        check("job/a/__name__/b", Err("empty or reserved"));
        check("job/a/@base64/YQ", Err("empty or reserved"));
        check("job/a/b@base64/*", Err("invalid base64"));
        check("job/a/b@base64/_w", Err("not of UTF-8"));
        check("job/%FF", Err("not UTF-8"));
        let mut many = "job/a".to_owned();
        for i in 0..LABELS_MAX {
            many += &format!("/l{i}/v");
        }
        check(&many, Err("more than 128 labels"));
    }
}
