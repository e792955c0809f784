package secrets

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Finding is one likely secret.
type Finding struct {
	Kind  string // what it looks like, e.g. "github token"
	Shown string // its first characters and how long it is
	Start int    // byte offsets in the text
	End   int
}

// MaxFindings is how many findings one text gives.
const MaxFindings = 20

// rule is one form of secret. A text without any of its hints is not looked at
// closer, so that a long text without secrets costs little.
type rule struct {
	kind  string
	hints []string // any of them, lower case; the text is lowered for it
	re    func() *regexp.Regexp
	group int  // of re: the secret itself
	guess bool // known by a name beside it: its value must not look like a placeholder
}

// pattern is compiled when it is first needed: most processes of the program,
// such as a hook, look at no text at all, and these cost 4 ms.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

var rules = []rule{
	{kind: "private key", hints: []string{"private key"}, re: pattern(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`)},
	{kind: "age secret key", hints: []string{"age-secret-key-"}, re: pattern(`AGE-SECRET-KEY-1[0-9A-Z]{20,}`)},
	{kind: "aws access key", hints: []string{"akia", "asia", "abia", "acca"}, re: pattern(`\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b`)},
	{kind: "github token", hints: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"}, re: pattern(`\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b`)},
	{kind: "gitlab token", hints: []string{"glpat-", "gldt-", "glrt-", "glcbt-"}, re: pattern(`\bgl(?:pat|dt|rt|cbt)-[A-Za-z0-9_\-]{20,}`)},
	{kind: "slack token", hints: []string{"xox", "xapp-"}, re: pattern(`\b(?:xox[abeoprs]|xapp)-[A-Za-z0-9\-]{10,}`)},
	{kind: "slack webhook", hints: []string{"hooks.slack.com"}, re: pattern(`https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9+/]{20,}`)},
	{kind: "api key", hints: []string{"sk-", "sk_", "rk_"}, re: pattern(`\b(?:sk-(?:proj-|svcacct-|admin-|ant-[a-z0-9]+-|or-v1-)?[A-Za-z0-9_\-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,})`)},
	{kind: "google api key", hints: []string{"aiza"}, re: pattern(`\bAIza[0-9A-Za-z_\-]{35}`)},
	{kind: "google client secret", hints: []string{"gocspx-"}, re: pattern(`\bGOCSPX-[A-Za-z0-9_\-]{20,}`)},
	{kind: "hugging face token", hints: []string{"hf_"}, re: pattern(`\bhf_[A-Za-z0-9]{30,}\b`)},
	{kind: "npm token", hints: []string{"npm_"}, re: pattern(`\bnpm_[A-Za-z0-9]{36}\b`)},
	{kind: "pypi token", hints: []string{"pypi-"}, re: pattern(`\bpypi-[A-Za-z0-9_\-]{50,}`)},
	{kind: "digitalocean token", hints: []string{"do_v1_", "dop_v1_", "doo_v1_"}, re: pattern(`\bdo[opr]?_v1_[a-f0-9]{64}\b`)},
	{kind: "tallystick token", hints: []string{"tally1."}, re: pattern(`\btally1\.[A-Za-z0-9_\-]{40,}`)},
	{kind: "json web token", hints: []string{"eyj"}, re: pattern(`\beyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}`)},
	{kind: "password in a url", hints: []string{"://"}, re: pattern(`\b[a-zA-Z][a-zA-Z0-9+.\-]{1,20}://[^\s/:@"'<>]{0,64}:([^\s/:@"'<>]{3,128})@[A-Za-z0-9\[]`), group: 1, guess: true},
	{kind: "authorization header", hints: []string{"authorization", "bearer "}, re: pattern(`(?i)\b(?:authorization\s*[:=]\s*["']?)?(?:bearer|basic)\s+([A-Za-z0-9+/_\-.=]{20,})`), group: 1, guess: true},
	{
		kind: "value named like a secret", hints: []string{"password", "passwd", "passphrase", "secret", "token", "api_key", "apikey", "api-key", "access_key", "credential", "private_key"},
		re: pattern(`(?i)(?:password|passwd|passphrase|secret|token|api[_\-]?key|access[_\-]?key|private[_\-]?key|credential)s?[A-Za-z0-9_\-]{0,24}["']?\s*(?::=|[:=])\s*` +
			"(?:\"([^\"\\s]{6,256})\"|'([^'\\s]{6,256})'|`([^`\\s]{6,256})`|([^\\s\"'`,;)\\]}]{8,256}))"), group: -1, guess: true,
	},
}

// Find lists what in a text is likely a secret, in the order of the text.
func Find(text string) []Finding {
	var out []Finding
	if len(text) < 12 {
		return nil
	}
	low := strings.ToLower(text)
	for i := range rules {
		r := &rules[i]
		if !slices.ContainsFunc(r.hints, func(h string) bool { return strings.Contains(low, h) }) {
			continue
		}
		for _, m := range r.re().FindAllStringSubmatchIndex(text, 4*MaxFindings) {
			start, end := m[0], m[1]
			switch {
			case r.group > 0:
				start, end = m[2*r.group], m[2*r.group+1]
			case r.group < 0: // the one group that matched
				for g := 2; g+1 < len(m); g += 2 {
					if m[g] >= 0 {
						start, end = m[g], m[g+1]
					}
				}
			}
			value := text[start:end]
			if r.guess && !convincing(value, r.group < 0) {
				continue
			}
			out = append(out, Finding{Kind: r.kind, Shown: mask(value), Start: start, End: end})
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return a.Start - b.Start })
	out = slices.CompactFunc(out, func(next, last Finding) bool { return next.Start < last.End }) // the same, by two rules
	return out[:min(len(out), MaxFindings)]
}

// placeholder is what stands where a secret would.
var placeholder = pattern(`(?i)^(?:\$|%|<|\{|\[|\*|\.\.\.)|x{4,}|\*{3,}|\.{3}$|your[_\-]|example|placeholder|redacted|changeme|dummy|sample|^(?:none|null|true|false|undefined|optional|required|string|secret|password|token|hidden|removed|masked)$`)

// code is an expression that reads a secret from elsewhere, or a path to it.
var code = pattern(`[({]|^[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)+$|^(?:\./|/|~/)|^[a-z]+://|::|->`)

// convincing reports whether a value that a name announces looks like a secret
// and not like prose, code or a placeholder. Names are weak evidence, so a word
// alone does not do.
func convincing(value string, named bool) bool {
	if placeholder().MatchString(value) {
		return false
	}
	if !named {
		return true
	}
	if code().MatchString(value) {
		return false
	}
	var digits, letters, other int
	for _, c := range value {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			letters++
		default:
			other++
		}
	}
	n := utf8.RuneCountInString(value)
	switch {
	case letters == 0 && other == 0: // a number: a limit, a port, a count
		return false
	case digits == 0 && other == 0 && n < 20: // a word
		return false
	case digits == 0 && strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.") == "": // a name in code
		return false
	}
	return entropy(value) >= 2.5
}

// entropy is the bits per character of a text, by its own letters.
func entropy(s string) float64 {
	var count [256]float64
	for i := range len(s) {
		count[s[i]]++
	}
	sum, n := 0.0, float64(len(s))
	for _, c := range count {
		if c > 0 {
			sum -= c / n * math.Log2(c/n)
		}
	}
	return sum
}

// mask shows enough of a secret to find it again, and no more.
func mask(s string) string {
	const most = 4
	shown, n := 0, 0
	for i := range s {
		if n == min(most, len(s)/4) {
			break
		}
		n++
		_, w := utf8.DecodeRuneInString(s[i:])
		shown = i + w
	}
	return s[:shown] + "..."
}
