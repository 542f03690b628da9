//! The one pattern language: `*` is any text, `/` included; `?` is exactly one character;
//! everything else stands for itself. The whole text must match, and case counts.

/// Longer patterns are refused by whoever takes one in.
pub const GLOB_MAX_BYTES: usize = 1024;

/// Whether the whole text matches the pattern. Takes no longer than the product of both lengths,
/// whatever they are, and is linear for what people write.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Behind the last star: the pattern, and the text that the star has not taken yet. A star
    // before it needs no second try, since the last one can take whatever that would have taken.
    let mut retry: Option<(core::str::Chars<'_>, core::str::Chars<'_>)> = None;
    loop {
        let (mut pattern_behind, mut text_behind) = (pattern.clone(), text.clone());
        match (pattern_behind.next(), text_behind.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                pattern = pattern_behind;
                retry = Some((pattern.clone(), text.clone()));
                continue;
            }
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                (pattern, text) = (pattern_behind, text_behind);
                continue;
            }
            _ => {}
        }
        // The last star takes one character more.
        let Some((behind_star, untaken)) = &mut retry else { return false };
        if untaken.next().is_none() {
            return false;
        }
        (pattern, text) = (behind_star.clone(), untaken.clone());
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use proptest::prelude::*;
    use wildmatch::WildMatch;

    use super::*;

    #[test]
    fn each_sign_means_what_it_says() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "a/b"),
            ("**", "a"),
            ("nightly/*", "nightly/import/1"),
            ("nightly/*", "nightly/"),
            ("shard-?", "shard-7"),
            ("?", "é"),
            ("?", "🔒"),
            ("a*b*c", "a b b c c"),
            ("[a]{b}\\", "[a]{b}\\"),
        ] {
            assert!(matches(pattern, text), "{pattern:?} {text:?}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("?", ""),
            ("?", "ab"),
            ("a", "A"),
            ("nightly/*", "nightly"),
            ("shard-?", "shard-10"),
            ("a*b", "a b c"),
            ("[ab]", "a"),
        ] {
            assert!(!matches(pattern, text), "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_more_than_the_product() {
        let text = "a".repeat(255);
        let pattern = "*a".repeat(GLOB_MAX_BYTES / 2 - 1) + "b";
        assert!(!matches(&pattern, &text));
        let pattern = "a*".repeat(200) + &"?".repeat(100);
        assert!(!matches(&pattern, &text));
    }

    fn few_letters() -> impl Strategy<Value = String> {
        "[ab*?é]{0,12}"
    }

    proptest! {
        #[test]
        fn another_implementation_agrees(pattern in few_letters(), text in "[abé]{0,12}") {
            prop_assert_eq!(matches(&pattern, &text), WildMatch::new(&pattern).matches(&text));
        }
    }
}
