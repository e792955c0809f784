package analysis_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"tallystick/query/search/analysis"
)

func terms(text string) string {
	var out []string
	for _, t := range analysis.Tokens(text) {
		term := t.Term
		if t.Whole {
			term = "=" + term
		}
		out = append(out, term)
	}
	return strings.Join(out, " ")
}

func TestTokens_IdentifiersSplitAndWhole(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"queryContext", "queri context =querycontext"},
		{"query_context", "queri context =querycontext"},
		{"query-context", "queri context =querycontext"},
		{"HTTPServer", "http server =httpserver"},
		{"parseIDs", "pars id =parseids"},
		{"internal/rpc/server_conn.go:228", "intern rpc server conn =serverconn go =serverconngo 228 =internalrpcserverconngo228"},
		{"v1.38.2", "1.38.2"},
		{"1.38.2", "1.38.2"},
		{"modernc.org/sqlite@v1.38.2", "modernc org =moderncorg sqlite 1.38.2 =moderncorgsqlitev1.38.2"},
		{"bd-9063acda", "bd 9063acda =bd9063acda"},
		{"bd-f8b764c9.4", "bd f8b764c9 =bdf8b764c9 4 =bdf8b764c9.4"},
		{"3c5b7414", "3c5b7414"},
		{"GH#146", "gh 146 =gh146"},
		{"sha256", "sha 256 =sha256"},
		{"C++ and C#, F#", "c++ c# f#"},
		{"TALLY_HOME=DIR", "talli home =tallyhome dir"},
		{"--no-daemon", "daemon =nodaemon"},
		{"store.Log.Append()", "store log append =storelogappend"},
	} {
		if got := terms(c.text); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestTokens_Words(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Who painted the paintings?", "paint paint"},
		{"She bought it; they went and wrote.", "buy go write"},
		{"Caroline's don't Caroline\u2019s", "carolin carolin"},
		{"children, kids", "child child"},
		{"caf\u00e9 cafe\u0301 CAF\u00c9", "cafe cafe cafe"},
		{"\u6771\u4eac\u90fd go", "\u6771\u4eac \u4eac\u90fd go"},
		{"zero\u200bwidth", "zerowidth"},
		{"... --- ''' /", ""},
		{"", ""},
		{"0#''s", "0 =0s"},
	} {
		if got := terms(c.text); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
}

// TestA4_TermsAreBounded holds the limit on a term for runs without an end.
func TestA4_TermsAreBounded(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", 1<<20), strings.Repeat("a/b_", 1<<18), strings.Repeat("\u00e9", 1000),
		strings.Repeat("aB", 1000), strings.Repeat("\u6771", 5000), strings.Repeat("a.", 100),
	} {
		for _, tok := range analysis.Tokens(text) {
			if len(tok.Term) > analysis.MaxTerm || !utf8.ValidString(tok.Term) || tok.Term == "" {
				t.Fatalf("term of %d bytes from %.10q...", len(tok.Term), text)
			}
		}
	}
}

func FuzzTokens(f *testing.F) {
	for _, s := range []string{"queryContext v1.2.3", "\xff\xfe", "a'b'c", "\u0e01\u0e33 c++", "A\u0300", "0#''s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range analysis.Tokens(text) {
			if tok.Term == "" || len(tok.Term) > analysis.MaxTerm || !utf8.ValidString(tok.Term) {
				t.Fatalf("bad term %q", tok.Term)
			}
		}
	})
}

func BenchmarkTokens(b *testing.B) {
	text := "The merge queue processor failed in internal/rpc/server_conn.go because queryContext was cancelled before the daemon wrote its answer."
	b.SetBytes(int64(len(text)))
	var a analysis.Analyser
	for b.Loop() {
		a.Tokens(text)
	}
}
