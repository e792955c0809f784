package analysis

import (
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"crypto/sha256"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"golang.org/x/text/unicode/norm"
)

// Version changes whenever the terms of the same text would change; an index
// of another version is refolded.
const Version = 1

const (
	// MaxTerm is the longest term in bytes.
	MaxTerm = 128
	// maxChunk is the longest run of bytes that is taken for an identifier.
	maxChunk = 256
)

// Token is a term of a text at its place among the text's words.
type Token struct {
	Term string
	// Surface is the word as it stood, lowered.
	Surface string
	// Whole marks an identifier kept whole beside its parts: parts stripped
	// of what joined them, so that queryContext, query_context and
	// query-context are one term. It takes no place of its own.
	Whole bool
}

// Tokens cuts text into terms, in order. Stop words are left out. Who cuts
// many texts uses an Analyser, which remembers stems.
func Tokens(text string) []Token {
	var a Analyser
	return a.Tokens(text)
}

// maxStems bounds what an Analyser remembers.
const maxStems = 1 << 16

// Analyser cuts texts into terms and remembers the stems of words it met. The
// zero value is ready. It is for one goroutine.
type Analyser struct {
	out   []Token
	buf   []part
	stems map[string]string
}

// Tokens is as the function; the slice is good until the next call.
func (a *Analyser) Tokens(text string) []Token {
	if a.out == nil {
		a.out = make([]Token, 0, len(text)/8+4)
	}
	a.out = a.out[:0]
	a.run(text)
	return a.out
}

func (a *Analyser) stem(word string) string {
	if s, ok := a.stems[word]; ok {
		return s
	}
	s := Stem(word)
	if len(word) <= MaxTerm {
		if a.stems == nil || len(a.stems) >= maxStems {
			a.stems = make(map[string]string)
		}
		a.stems[strings.Clone(word)] = strings.Clone(s)
	}
	return s
}

// Stem gives the term of one lowered word.
func Stem(word string) string {
	if w, ok := irregular[word]; ok {
		word = w
	}
	if len(word) < 3 || !asciiLetters(word) {
		return word
	}
	env := snowballstem.NewEnv(word)
	english.Stem(env)
	return env.Current()
}

func (a *Analyser) run(text string) {
	text = Fold(text)
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if !inChunk(r) {
			i += n
			continue
		}
		start := i
		for i < len(text) {
			if r, n = utf8.DecodeRuneInString(text[i:]); !inChunk(r) {
				break
			}
			i += n
		}
		a.chunk(text[start:i])
	}
}

// Fold brings text to one spelling without lowering it: compatibility forms
// composed, marks dropped, typographic apostrophes made plain.
func Fold(text string) string {
	ascii := true
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		return text
	}
	text = strings.ToValidUTF8(text, " ")
	var b strings.Builder
	b.Grow(len(text))
	var iter norm.Iter
	iter.InitString(norm.NFKD, text)
	for !iter.Done() {
		for _, r := range string(iter.Next()) {
			switch {
			case r == '\u2019' || r == '\u02bc':
				b.WriteByte('\'')
			case r == '\u2010' || r == '\u2011':
				b.WriteByte('-')
			case unicode.Is(unicode.Mn, r) && r < 0x0900: // Latin, Greek, Cyrillic, Hebrew, Arabic marks
			case unicode.Is(unicode.Cf, r): // invisible
			default:
				b.WriteRune(r)
			}
		}
	}
	return norm.NFC.String(b.String())
}

// inChunk reports whether r may stand inside a word or an identifier.
func inChunk(r rune) bool {
	switch r {
	case '_', '-', '.', '/', ':', '@', '#', '+', '\'', '\\', '=', '~', '&':
		return true
	}
	if r < utf8.RuneSelf {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

const joiners = "_-./:@#+'\\=~&"

// chunk takes a run of word characters and joiners.
func (a *Analyser) chunk(c string) {
	if n := len(c); n > 1 && (c[n-1] == '+' || c[n-1] == '#' || c[n-1] == '.' || c[n-1] == ':') {
		if special := symbolic(c); special != "" {
			a.add(special, false)
			return
		}
	}
	c = trim(c)
	if c == "" {
		return
	}
	if w := plain(c); w != "" {
		if !stopWords[w] {
			a.push(Token{Term: a.stem(w), Surface: w})
		}
		return
	}
	if len(c) > maxChunk {
		// No identifier of anybody's: cut it up and keep no whole.
		for p := range strings.FieldsFuncSeq(c, func(r rune) bool { return strings.ContainsRune(joiners, r) }) {
			a.word(p)
		}
		return
	}
	a.level(c, 0)
}

// trim takes joiners off both ends.
func trim(c string) string {
	from, to := 0, len(c)
	for from < to && joiner[c[from]] {
		from++
	}
	for to > from && joiner[c[to-1]] {
		to--
	}
	return c[from:to]
}

// joiner has the bytes of joiners.
var joiner = func() (t [256]bool) {
	for i := range len(joiners) {
		t[joiners[i]] = true
	}
	return t
}()

// plain gives a word of ASCII letters lowered, if c is one and nothing more:
// the short way for most of any text.
func plain(c string) string {
	if len(c) > 64 {
		return ""
	}
	for i := range len(c) {
		if c[i] < 'a' || c[i] > 'z' {
			if i == 0 && c[0] >= 'A' && c[0] <= 'Z' {
				continue
			}
			return ""
		}
	}
	if c[0] < 'a' {
		return strings.ToLower(c[:1]) + c[1:]
	}
	return c
}

// symbolic knows the few names that end in a sign.
func symbolic(c string) string {
	c = strings.TrimRight(c, ".:'-/")
	if len(c) == 3 && c[1:] == "++" || len(c) == 2 && (c[1] == '#') {
		if l := lowerASCII(c[0]); l >= 'a' && l <= 'z' {
			return string(l) + c[1:]
		}
	}
	return ""
}

func lowerASCII(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// levels of joiners, from the loosest: a path or an address breaks before a
// file name does, and that before a name in it.
var levels = [...]string{"=&", "/\\:@#~", ".", "-_+'"}

// level cuts c at the joiners of one level and adds what has several parts
// whole as well.
func (a *Analyser) level(c string, at int) {
	if at == 2 && version(c) || at >= 2 && hexID(c) {
		a.add(strings.TrimPrefix(strings.ToLower(c), "v"), false)
		return
	}
	if at == len(levels) {
		a.camel(c)
		return
	}
	if !strings.ContainsAny(c, levels[at]) {
		a.level(c, at+1)
		return
	}
	first := len(a.out)
	for p := range strings.FieldsFuncSeq(c, func(r rune) bool { return strings.ContainsRune(levels[at], r) }) {
		a.level(p, at+1)
	}
	if at == len(levels)-1 && strings.ContainsRune(c, '\'') && !strings.ContainsAny(c, "-_+") {
		a.out = a.out[:first]
		a.word(c) // a contraction or a possessive is one word
		return
	}
	if at > 0 && len(a.out) > first {
		a.whole(c)
	}
}

// version reports whether c is digits joined by dots, with or without a v.
func version(c string) bool {
	if len(c) > 1 && (c[0] == 'v' || c[0] == 'V') {
		c = c[1:]
	}
	dots := 0
	for i := range len(c) {
		switch {
		case c[i] == '.' && i > 0 && i < len(c)-1:
			dots++
		case c[i] < '0' || c[i] > '9':
			return false
		}
	}
	return dots > 0
}

// hexID reports whether c is a hash or a part of one: six or more lower-case
// hex digits with letters and digits both.
func hexID(c string) bool {
	if len(c) < 6 || len(c) > MaxTerm {
		return false
	}
	var letters, digits bool
	for i := range len(c) {
		switch {
		case c[i] >= '0' && c[i] <= '9':
			digits = true
		case c[i] >= 'a' && c[i] <= 'f':
			letters = true
		default:
			return false
		}
	}
	return letters && digits
}

type part struct{ from, to int }

// camel cuts at changes of case and before a trailing number, and adds what
// was cut whole.
func (a *Analyser) camel(c string) {
	parts := a.cut(c)
	if len(parts) < 2 {
		a.word(c)
		return
	}
	for _, p := range parts {
		a.word(c[p.from:p.to])
	}
	a.whole(c)
}

func (a *Analyser) cut(c string) []part {
	const (
		other = iota
		lower
		upper
		digit
	)
	class := func(b byte) int {
		switch {
		case b >= 'a' && b <= 'z':
			return lower
		case b >= 'A' && b <= 'Z':
			return upper
		case b >= '0' && b <= '9':
			return digit
		}
		return other
	}
	a.buf = a.buf[:0]
	from := 0
	for i := 1; i < len(c); i++ {
		was, is := class(c[i-1]), class(c[i])
		at := -1
		switch {
		case was == lower && is == upper:
			at = i
		case was == upper && is == lower && i-1 > from && class(c[i-2]) == upper:
			if c[i] == 's' && (i+1 == len(c) || class(c[i+1]) != lower) {
				break // a plural of capitals: IDs, PRs
			}
			at = i - 1
		case is == digit && (was == lower || was == upper) && i-from >= 3 && allDigits(c[i:]):
			at = i
		}
		if at > from {
			a.buf = append(a.buf, part{from, at})
			from = at
		}
	}
	return append(a.buf, part{from, len(c)})
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// word adds one word, or pairs of a script without spaces.
func (a *Analyser) word(w string) {
	w = strings.ToLower(w)
	if w == "" {
		return
	}
	if i := strings.IndexFunc(w, unspaced); i >= 0 {
		a.pairs(w)
		return
	}
	if stopWords[w] {
		return
	}
	if i := strings.IndexByte(w, '\''); i >= 0 {
		if rest := w[i+1:]; rest == "s" || rest == "" {
			w = w[:i]
		}
		if w == "" || stopWords[w] {
			return
		}
	}
	a.push(Token{Term: a.stem(w), Surface: w})
}

func (a *Analyser) add(w string, whole bool) { a.push(Token{Term: w, Surface: w, Whole: whole}) }

// whole adds an identifier stripped of its joiners; between two digits the
// joiner stays, as a dot.
func (a *Analyser) whole(c string) {
	var b strings.Builder
	joined, last := false, rune(0)
	for _, r := range strings.ToLower(c) {
		if strings.ContainsRune(joiners, r) {
			joined = true
			continue
		}
		if joined && isDigit(last) && isDigit(r) {
			b.WriteByte('.')
		}
		b.WriteRune(r)
		joined, last = false, r
	}
	a.push(Token{Term: b.String(), Surface: strings.ToLower(c), Whole: true})
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

func (a *Analyser) push(t Token) {
	if t.Term == "" {
		return // the stemmer takes "''s" for an ending and nothing before it
	}
	if len(t.Term) > MaxTerm {
		sum := sha256.Sum256([]byte(t.Term))
		cut := MaxTerm - 16
		for !utf8.RuneStart(t.Term[cut]) {
			cut--
		}
		t.Term = t.Term[:cut] + hex.EncodeToString(sum[:8])
	}
	a.out = append(a.out, t)
}

// unspaced reports scripts that put no space between words.
func unspaced(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// pairs adds overlapping pairs of a run without spaces, and the words between
// such runs.
func (a *Analyser) pairs(w string) {
	rs := []rune(w)
	for i := 0; i < len(rs); {
		j := i
		for j < len(rs) && unspaced(rs[j]) == unspaced(rs[i]) {
			j++
		}
		switch {
		case !unspaced(rs[i]):
			a.word(string(rs[i:j]))
		case j-i == 1:
			a.add(string(rs[i:j]), false)
		default:
			for k := i; k+1 < j; k++ {
				a.add(string(rs[k:k+2]), false)
			}
		}
		i = j
	}
}

func asciiLetters(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && c != '\'' {
			return false
		}
	}
	return true
}
