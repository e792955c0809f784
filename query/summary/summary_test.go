package summary_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tallystick/oplog"
	"tallystick/query/identity"
	"tallystick/query/imported"
	"tallystick/query/internal/foldtest"
	"tallystick/query/refusal"
	"tallystick/query/summary"
)

func entry(seq uint64, s summary.Summary) oplog.Entry {
	if s.Title == "" {
		s.Title = fmt.Sprint(seq)
	}
	if s.Category == "" {
		s.Category = summary.DefaultCategory
	}
	return foldtest.Entry(1, seq, foldtest.At(int64(seq)*1000), summary.Kind, "mac:claude:x", s.Append(nil))
}

func at(seconds int) string {
	return time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339)
}

func fold(t rapid.TB, entries ...oplog.Entry) *foldtest.Replica {
	t.Helper()
	r := foldtest.NewReplica(summary.View{})
	if err := r.Apply(entries...); err != nil {
		t.Fatal(err)
	}
	return r
}

func list(t rapid.TB, r oplog.Snapshot, q summary.Query) summary.Page {
	t.Helper()
	p, err := summary.List(r, q)
	if err != nil {
		t.Fatalf("list %+v: %v", q, err)
	}
	if p.Count != len(p.Summaries) || p.Summaries == nil {
		t.Fatalf("count %d of %d", p.Count, len(p.Summaries))
	}
	return p
}

func all() identity.Filter           { return identity.Filter{All: true} }
func of(name string) identity.Filter { return identity.Filter{Identity: name} }
func ids(names ...string) []string   { return names }
func titles(p summary.Page) (s string) {
	for _, r := range p.Summaries {
		s += r.Title + " "
	}
	return strings.TrimSpace(s)
}

// Case 10 of the reference: several authors each see the summary.
func TestOwnSummariesNewestFirst(t *testing.T) {
	r := fold(t,
		entry(1, summary.Summary{Identities: ids("a"), Timestamp: at(100)}),
		entry(2, summary.Summary{Identities: ids("b"), Timestamp: at(200)}),
		entry(3, summary.Summary{Identities: ids("a"), Timestamp: at(300)}),
		entry(4, summary.Summary{Identities: ids("a", "b"), Timestamp: at(400)}))
	p := list(t, r, summary.Query{Filter: of("a"), Limit: 10})
	if titles(p) != "4 3 1" || p.Count != 3 || p.Total != 3 || p.Limit != 10 || p.Offset != 0 {
		t.Fatalf("%+v", p)
	}
	if p := list(t, r, summary.Query{Filter: all()}); titles(p) != "4 3 2 1" || p.Total != 4 {
		t.Errorf("team-wide %+v", p)
	}
	if p := list(t, r, summary.Query{Filter: of("A")}); p.Total != 0 || p.Count != 0 || p.Note == "" {
		t.Errorf("case does not matter: %+v", p)
	}
	if p := list(t, r, summary.Query{Filter: of("ab")}); p.Total != 0 {
		t.Errorf("part of a token matches: %+v", p)
	}
}

func TestEqualTimesFallBackToID(t *testing.T) {
	var entries []oplog.Entry
	for i := uint64(1); i <= 9; i++ {
		entries = append(entries, entry(i, summary.Summary{Timestamp: at(5), Category: summary.Categories()[i%3]}))
	}
	p := list(t, fold(t, entries...), summary.Query{Filter: all()})
	if !slices.IsSortedFunc(p.Summaries, func(a, b summary.Record) int { return strings.Compare(a.ID, b.ID) }) || p.Count != 9 {
		t.Errorf("%+v", p)
	}
}

func TestCategoryAndIdentityCompose(t *testing.T) {
	r := fold(t,
		entry(1, summary.Summary{Identities: ids("a"), Category: "bugfix"}),
		entry(2, summary.Summary{Identities: ids("b"), Category: "bugfix"}),
		entry(3, summary.Summary{Identities: ids("a"), Category: "feature"}))
	if p := list(t, r, summary.Query{Filter: of("a"), Category: "bugfix"}); titles(p) != "1" || p.Total != 1 {
		t.Errorf("%+v", p)
	}
	if p := list(t, r, summary.Query{Filter: all(), Category: "bugfix"}); titles(p) != "2 1" || p.Total != 2 {
		t.Errorf("%+v", p)
	}
	if p := list(t, r, summary.Query{Filter: of("b"), Category: "feature"}); p.Total != 0 || p.Note != "" {
		t.Errorf("%+v", p)
	}
}

func TestBadTimestampsSurviveAndAreCounted(t *testing.T) {
	r := fold(t,
		entry(1, summary.Summary{Identities: ids("a"), Timestamp: "yesterday"}),
		entry(2, summary.Summary{Identities: ids("a"), Timestamp: "1969-12-31T23:59:59Z"}),
		entry(3, summary.Summary{Identities: ids("a"), Timestamp: at(7)}),
		entry(4, summary.Summary{Identities: ids("b")}))
	p := list(t, r, summary.Query{Filter: of("a")})
	if titles(p) != "3 2 1" || p.Malformed != 1 || p.Summaries[2].Timestamp != nil || *p.Summaries[1].Timestamp != "1969-12-31T23:59:59.000Z" {
		t.Fatalf("%+v", p)
	}
	b, err := json.Marshal(list(t, r, summary.Query{Filter: of("b")}))
	if err != nil || strings.Contains(string(b), "malformedTimestamps") || !strings.Contains(string(b), `"timestamp":"2026-01-01T00:00:04.000Z"`) {
		t.Errorf("%s %v", b, err)
	}
	b, _ = json.Marshal(p)
	if !strings.Contains(string(b), `"malformedTimestamps":1`) || !strings.Contains(string(b), `"timestamp":null`) {
		t.Errorf("%s", b)
	}
}

func TestPages(t *testing.T) {
	var entries []oplog.Entry
	for i := uint64(1); i <= 7; i++ {
		entries = append(entries, entry(i, summary.Summary{Identities: ids("a"), Category: summary.Categories()[i%2]}))
	}
	r := fold(t, entries...)
	q, got := summary.Query{Filter: of("a"), Limit: 3}, ""
	for {
		p := list(t, r, q)
		got += titles(p) + "|"
		if p.Total != 7 || p.HasMore != (p.NextOffset != nil) {
			t.Fatalf("%+v", p)
		}
		if !p.HasMore {
			break
		}
		q.Offset = *p.NextOffset
	}
	if got != "7 6 5|4 3 2|1|" {
		t.Errorf("pages %s", got)
	}
	if p := list(t, r, summary.Query{Filter: of("a"), Offset: 99}); p.Count != 0 || p.Total != 7 || p.HasMore {
		t.Errorf("beyond the end %+v", p)
	}
}

func TestPageEndsAtThirtyTwoKilobytes(t *testing.T) {
	text := strings.Repeat("x", 20_000)
	r := fold(t, entry(1, summary.Summary{Text: text}), entry(2, summary.Summary{Text: text}), entry(3, summary.Summary{Text: strings.Repeat("y", 60_000)}))
	for offset := 0; offset < 3; offset++ {
		p := list(t, r, summary.Query{Filter: all(), Offset: offset})
		if p.Count != 1 || p.Truncated != (offset < 2) || p.HasMore != (offset < 2) {
			t.Errorf("offset %d: %d, truncated %v", offset, p.Count, p.Truncated)
		}
	}
}

func TestQueryErrors(t *testing.T) {
	r := fold(t)
	for _, c := range []struct {
		q     summary.Query
		field string
	}{
		{summary.Query{Filter: all(), Limit: 501}, "limit"},
		{summary.Query{Filter: all(), Limit: -1}, "limit"},
		{summary.Query{Filter: all(), Offset: -1}, "offset"},
		{summary.Query{Filter: all(), Category: "Bugfix"}, "category"},
		{summary.Query{}, "agentIdentity"},
	} {
		_, err := summary.List(r, c.q)
		if e, ok := refusal.As(err); !ok || e.Field != c.field {
			t.Errorf("%+v: %v", c.q, err)
		}
	}
}

func TestUnknownIdentityGetsNearNames(t *testing.T) {
	r := fold(t, entry(1, summary.Summary{Identities: ids("mac:claude:tally")}), entry(2, summary.Summary{Identities: ids("other-name")}))
	p := list(t, r, summary.Query{Filter: of("mac:claude:taly")})
	if !strings.Contains(p.Note, `"mac:claude:tally"`) || strings.Contains(p.Note, "other-name") {
		t.Errorf("note %q", p.Note)
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		s      summary.Summary
		field  string
		expect []string
	}{
		{"OK absent identities are the writer", summary.Summary{Title: " t ", Text: "x"}, "", ids("mac:claude:x")},
		{"OK empty list is nobody", summary.Summary{Title: "t", Text: "x", Identities: []string{}}, "", []string{}},
		{"OK one @ off, no repeats", summary.Summary{Title: "t", Text: "x", Identities: ids("@a", "a", "b c")}, "", ids("a", "b c")},
		{"ErrTitle", summary.Summary{Title: " ", Text: "x"}, "title", nil},
		{"ErrTitleLines", summary.Summary{Title: "a\nb", Text: "x"}, "title", nil},
		{"ErrTitleSize", summary.Summary{Title: strings.Repeat("x", 513), Text: "x"}, "title", nil},
		{"ErrText", summary.Summary{Title: "t"}, "summary", nil},
		{"ErrTextSize", summary.Summary{Title: "t", Text: strings.Repeat("x", 64<<10+1)}, "summary", nil},
		{"ErrTextNUL", summary.Summary{Title: "t", Text: "\x00"}, "summary", nil},
		{"ErrCategory", summary.Summary{Title: "t", Text: "x", Category: "Bugfix"}, "category", nil},
		{"ErrTimestamp", summary.Summary{Title: "t", Text: "x", Timestamp: "yesterday"}, "timestamp", nil},
		{"ErrSession", summary.Summary{Title: "t", Text: "x", Session: "a\tb"}, "sessionId", nil},
		{"ErrComma", summary.Summary{Title: "t", Text: "x", Identities: ids("a,b")}, "sourceAgentIdentities", nil},
		{"ErrPadded", summary.Summary{Title: "t", Text: "x", Identities: ids(" a")}, "sourceAgentIdentities", nil},
		{"ErrMe", summary.Summary{Title: "t", Text: "x", Identities: ids("@me")}, "sourceAgentIdentities", nil},
		{"ErrAll", summary.Summary{Title: "t", Text: "x", Identities: ids("ALL")}, "sourceAgentIdentities", nil},
		{"ErrTwoAts", summary.Summary{Title: "t", Text: "x", Identities: ids("@@a")}, "sourceAgentIdentities", nil},
		{"ErrBlank", summary.Summary{Title: "t", Text: "x", Identities: ids("")}, "sourceAgentIdentities", nil},
		{"ErrLong", summary.Summary{Title: "t", Text: "x", Identities: ids(strings.Repeat("x", 257))}, "sourceAgentIdentities", nil},
		{"ErrMany", summary.Summary{Title: "t", Text: "x", Identities: make([]string, 33)}, "sourceAgentIdentities", nil},
		{"ErrImport", summary.Summary{Title: "t", Text: "x", Import: imported.Key{Source: "beads"}}, "import.id", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			op, err := summary.NewOp("mac:claude:x", c.s)
			if c.field != "" {
				if e, ok := refusal.As(err); !ok || e.Field != c.field || e.Hint == "" {
					t.Fatalf("%#v, want an error about %s", err, c.field)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			e := foldtest.Entry(1, 1, foldtest.At(0), op.Kind, op.Author, op.Body)
			s, err := summary.Decode(&e)
			if err != nil || !reflect.DeepEqual(s.Identities, c.expect) || s.Title != "t" || s.Category != "other" {
				t.Fatalf("%+v %v", s, err)
			}
		})
	}
	if _, err := summary.NewOp("", summary.Summary{Title: "t", Text: "x"}); refusal.CodeOf(err) != refusal.IdentityUnbound {
		t.Errorf("I8: an unbound session writes: %v", err)
	}
}

func TestImportsFoldToTheEarliest(t *testing.T) {
	key := imported.Key{Source: "beads", ID: "bd-1", Part: "summary"}
	first := entry(1, summary.Summary{Title: "first", Import: key, Identities: ids("a"), Timestamp: at(9), Category: "bugfix"})
	second := entry(2, summary.Summary{Title: "second", Import: key, Identities: ids("a", "b"), Timestamp: "never"})
	a, b := fold(t, first, second), fold(t, second, first)
	if x, y := a.Tx(summary.ViewName).Dump(), b.Tx(summary.ViewName).Dump(); x != y {
		t.Fatalf("M1: rows differ\n%s\n%s", x, y)
	}
	p := list(t, b, summary.Query{Filter: all()})
	if titles(p) != "first" || p.Total != 1 || p.Malformed != 0 {
		t.Errorf("%+v", p)
	}
	if p := list(t, b, summary.Query{Filter: of("b")}); p.Total != 0 || p.Count != 0 {
		t.Errorf("the copy still counts: %+v", p)
	}
	if ref, ok, err := summary.Imported(b, key); err != nil || !ok || ref != first.Ref() {
		t.Errorf("imported %v %v", ok, err)
	}
	copies, _, err := summary.CopyPage(b, nil, 10)
	if err != nil || len(copies) != 1 || copies[0].Copy != second.Ref() || copies[0].Counts != first.Ref() {
		t.Errorf("M3: copies %+v %v", copies, err)
	}
}

// TestTotalIsWhatPagingFinds compares counters, pages and order with a plain
// reading of the same entries.
func TestTotalIsWhatPagingFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 200).Draw(t, "n")
		var entries []oplog.Entry
		for i := 1; i <= n; i++ {
			s := summary.Summary{
				Category:   rapid.SampledFrom(summary.Categories()).Draw(t, "category"),
				Identities: rapid.SampledFrom([][]string{{}, {"a"}, {"b"}, {"a", "b"}}).Draw(t, "identities"),
				Timestamp:  rapid.SampledFrom([]string{"", at(1), at(2), "bad"}).Draw(t, "timestamp"),
			}
			entries = append(entries, entry(uint64(i), s))
		}
		r := fold(t, entries...)
		q := summary.Query{Filter: of("a"), Limit: rapid.IntRange(1, 80).Draw(t, "limit")}
		if rapid.Bool().Draw(t, "one category") {
			q.Category = "bugfix"
		}
		want := 0
		for i := range entries {
			s, err := summary.Decode(&entries[i])
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(s.Identities, "a") && (q.Category == "" || q.Category == s.Category) {
				want++
			}
		}
		var got []summary.Record
		for {
			p := list(t, r, q)
			if int(p.Total) != want {
				t.Fatalf("total %d, want %d", p.Total, want)
			}
			got = append(got, p.Summaries...)
			if !p.HasMore {
				break
			}
			q.Offset = *p.NextOffset
		}
		if len(got) != want {
			t.Fatalf("%d summaries on the pages, want %d", len(got), want)
		}
		time := func(r summary.Record) string {
			if r.Timestamp == nil {
				return ""
			}
			return *r.Timestamp
		}
		if !slices.IsSortedFunc(got, func(a, b summary.Record) int {
			if c := strings.Compare(time(b), time(a)); c != 0 {
				return c
			}
			return strings.Compare(a.ID, b.ID)
		}) {
			t.Fatal("not in order")
		}
	})
}

func TestL8_GoldenPayload(t *testing.T) {
	s := summary.Summary{Title: "t", Text: "x", Category: "other", Identities: ids("a-b"), Timestamp: "2026-01-02T03:04:05Z"}
	const want = "97a174a56f74686572a0b4323032362d30312d30325430333a30343a30355a91a3612d62c0a178"
	if got := hex.EncodeToString(s.Append(nil)); got != want {
		t.Errorf("summary %s, want %s", got, want)
	}
}

func TestL6_WhatCannotBeFoldedIsSetAside(t *testing.T) {
	ok := summary.Summary{Title: "t", Text: "x", Category: "other"}
	for name, change := range map[string]func(*summary.Summary){
		"title":              func(s *summary.Summary) { s.Title = "a\nb" },
		"category":           func(s *summary.Summary) { s.Category = "none" },
		"identity":           func(s *summary.Summary) { s.Identities = ids("a,b") },
		"repeated":           func(s *summary.Summary) { s.Identities = ids("a", "a") },
		"identity with @":    func(s *summary.Summary) { s.Identities = ids("@a") },
		"text":               func(s *summary.Summary) { s.Text = "\x00" },
		"timestamp too long": func(s *summary.Summary) { s.Timestamp = strings.Repeat("1", 65) },
	} {
		s := ok
		change(&s)
		e := foldtest.Entry(1, 1, foldtest.At(0), summary.Kind, "a-b", s.Append(nil))
		var q *oplog.QuarantineError
		tx := foldtest.NewTx()
		if err := (summary.View{}).Apply(tx, &e); !errors.As(err, &q) || tx.Len() != 0 {
			t.Errorf("%s: %v, %d rows", name, err, tx.Len())
		}
	}
	e := foldtest.Entry(1, 1, foldtest.At(0), summary.Kind, "a-b", ok.Append(nil))
	e.Version = 1
	var q *oplog.QuarantineError
	if err := (summary.View{}).Apply(foldtest.NewTx(), &e); !errors.As(err, &q) {
		t.Errorf("later version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	s := summary.Summary{Title: "t", Text: "x", Category: "other", Identities: ids("a"), Session: "s", Timestamp: at(1), Import: imported.Key{Source: "s", ID: "i", Part: "p"}}
	f.Add(s.Append(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		e := foldtest.Entry(1, 1, foldtest.At(0), summary.Kind, "a-b", body)
		s, err := summary.Decode(&e)
		if err != nil {
			return
		}
		if again := s.Append(nil); string(again) != string(body) {
			t.Fatalf("decoding and encoding again gives\n%x\nof\n%x", again, body)
		}
		if err := (summary.View{}).Apply(foldtest.NewTx(), &e); err == nil {
			if p := list(t, fold(t, e), summary.Query{Filter: all()}); p.Total != 1 || p.Count != 1 {
				t.Fatalf("folded but not listed: %+v", p)
			}
		}
	})
}
