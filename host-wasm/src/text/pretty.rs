//! JSON for people: the same text with line ends and two spaces for each level.

/// Breaks a compact JSON text into lines, as `serde_json` writes it for people, without a second copy of every type's
/// writer. O(length).
pub(crate) fn pretty(compact: &str) -> String {
    let mut text = String::with_capacity(compact.len() * 2);
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    let mut rest = compact.chars().peekable();
    while let Some(next) = rest.next() {
        if is_text {
            text.push(next);
            is_text = is_escaped || next != '"';
            is_escaped = !is_escaped && next == '\\';
            continue;
        }
        match next {
            '{' | '[' => {
                text.push(next);
                if let Some(end) = rest.next_if(|end| matches!(end, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(next);
            }
            ',' => {
                text.push(next);
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            _ => {
                is_text = next == '"';
                text.push(next);
            }
        }
    }
    text
}

fn line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}
