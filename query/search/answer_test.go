package search_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tallystick/query/search"
)

// TestSearch_KinOfAWord: a word stands for others that people use for it, less
// than for itself, and the answer says so; without a hit of its own it widens
// nothing.
func TestSearch_KinOfAWord(t *testing.T) {
	x := index(t,
		note("itself", "Nora keeps a pet on the balcony"),
		note("kin", "Nora walks her dog before the office opens"),
		note("else", "Nora paints the fence"),
	)
	res := find(t, x, search.Query{Text: "which pet does Nora have"})
	if got := ids(res); got != "itself kin else" {
		t.Fatalf("hits %q", got)
	}
	if w := res.Hits[1].Why.Family; !slices.Equal(w, []search.Like{{Asked: "pet", Found: "dog"}}) {
		t.Errorf("why %+v", res.Hits[1].Why)
	}
	// A dog is a pet, a pet need not be a dog.
	if res := find(t, x, search.Query{Text: "whose dog"}); ids(res) != "kin" {
		t.Errorf("dog: %q", ids(res))
	}
	// What nothing here holds still leads to what means the same, and says so.
	y := index(t, note("long", "the database pool holds ten"), note("other", "the pool is closed on Monday"))
	if res := find(t, y, search.Query{Text: "db"}); ids(res) != "long" || !res.Fuzzy || !slices.Equal(res.Missing, []string{"db"}) ||
		!slices.Equal(res.Hits[0].Why.Family, []search.Like{{Asked: "db", Found: "databas"}}) {
		t.Errorf("db: %q, fuzzy %v, missing %q, %+v", ids(res), res.Fuzzy, res.Missing, res.Hits)
	}
}

// TestSearch_IdentifierRunTogether: an identifier is found when its parts are
// typed without what separates them, as an exact match.
func TestSearch_IdentifierRunTogether(t *testing.T) {
	x := index(t, note("it", "the parseConfigFile function reads it"), note("parts", "parse the config of a file"))
	for _, text := range []string{"parseconfigfile", "PARSECONFIGFILE", "who calls parseconfigfile"} {
		res := find(t, x, search.Query{Text: text})
		if ids(res) != "it" || res.Fuzzy || !slices.Equal(res.Hits[0].Why.Identifiers, []string{"parseconfigfile"}) {
			t.Errorf("%s: %q, fuzzy %v, %+v", text, ids(res), res.Fuzzy, res.Hits)
		}
	}
}

// TestSearch_LooksLikeAnAnswer: among equal matches the one goes first that
// tells a time, a number, comes from who was named or from when was named;
// none is left out for it.
func TestSearch_LooksLikeAnAnswer(t *testing.T) {
	day := time.Date(2026, 3, 5, 12, 0, 0, 0, time.UTC).UnixMilli()
	by := func(id, who, text string, at int64) search.Document {
		return search.Document{ID: id, Kind: "turn", Text: text, Time: at, Identities: []string{who}}
	}
	x := index(t,
		by("plain", "mac:ana:p", "the harbour bridge was painted by somebody", 1),
		by("time", "mac:ana:p", "the harbour bridge was painted on Tuesday", 1),
		by("number", "mac:ana:p", "the harbour bridge was painted 14 times", 1),
		by("said", "mac:carl:p", "the harbour bridge was painted by somebody", 1),
		by("dated", "mac:ana:p", "the harbour bridge was painted by somebody", day),
		note("transcript", "Dora: the harbour bridge was painted by somebody"),
	)
	for _, c := range []struct{ ask, want string }{
		{"when was the harbour bridge painted", "time"},
		{"which day was the harbour bridge painted", "time"},
		{"how many times was the harbour bridge painted", "number"},
		{"what did Carl say of the harbour bridge painted", "said"},
		{"what did Dora say of the harbour bridge painted", "transcript"},
		{"was the harbour bridge painted on 2026-03-05", "dated"},
		{"was the harbour bridge painted on 5 March 2026?", "dated"},
		{"was the harbour bridge painted on March 5th, 2026", "dated"},
		{"was the harbour bridge painted in March 2026", "dated"},
	} {
		res := find(t, x, search.Query{Text: c.ask})
		if len(res.Hits) != 6 || res.Hits[0].ID != c.want || res.Hits[0].Why.ByCue <= 0 || !strings.Contains(res.Hits[0].Why.String(), "looks like an answer") {
			t.Errorf("%s: %q, want all and %s first", c.ask, ids(res), c.want)
		}
	}
	for _, ask := range []string{"harbour bridge painted", "may I paint the harbour bridge", "how is the harbour bridge painted"} {
		for _, h := range find(t, x, search.Query{Text: ask}).Hits {
			if h.Why.ByCue != 0 {
				t.Errorf("%s: %s gains %v", ask, h.ID, h.Why.ByCue)
			}
		}
	}
}

// TestSearch_ShortMisspellings: words of three and four letters are found with
// one letter wrong, missing, doubled or swapped, and nothing is found for two.
func TestSearch_ShortMisspellings(t *testing.T) {
	x := index(t, note("git", "the git hook"), note("mesh", "the mesh port"), note("lock", "a lock file"), note("api", "the api key"))
	for _, c := range [][2]string{
		{"gti", "git"}, {"gitt", "git"}, {"mseh", "mesh"}, {"mehs", "mesh"}, {"mesg", "mesh"}, {"meh", "mesh"},
		{"lokc", "lock"}, {"loc", "lock"}, {"locck", "lock"}, {"aip", "api"}, {"apj", "api"},
	} {
		res := find(t, x, search.Query{Text: c[0]})
		if len(res.Hits) == 0 || res.Hits[0].ID != c[1] || !res.Fuzzy || len(res.Notes) == 0 || len(res.Hits[0].Why.Spelt) == 0 {
			t.Errorf("%s: %q fuzzy %v notes %q, want %s", c[0], ids(res), res.Fuzzy, res.Notes, c[1])
		}
	}
	for _, text := range []string{"zz", "xyq", "qqqq"} {
		if res := find(t, x, search.Query{Text: text}); len(res.Hits) != 0 || res.Fuzzy {
			t.Errorf("%s: %q", text, ids(res))
		}
	}
	// What is spelt right is never taken for something else.
	if res := find(t, x, search.Query{Text: "git"}); ids(res) != "git" || res.Fuzzy {
		t.Errorf("git: %q", ids(res))
	}
}
