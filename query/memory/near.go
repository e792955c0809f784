package memory

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cespare/xxhash/v2"

	"tallystick/oplog"
)

// Near-duplicates are found by bands of a min-hash over the words of a text:
// texts that share most of their words share a band with high probability.
// The first band is the text without case, punctuation and spacing. Bands are
// part of the view's rows; changing them changes its version.
const (
	minHashes = 8
	perBand   = 2
	maxWords  = 512

	// bandReach is how many facts of one band are looked at, newest first.
	bandReach = 32
	// Likeness is the share of common words from which two facts are named as
	// near-duplicates.
	Likeness = 0.6
)

// words is the set of a text's words: runs of letters and digits in lower
// case; of scripts without spaces, pairs of characters.
func words(text string) []string {
	var list []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !unicode.IsMark(c) }) {
		if len(list) >= maxWords {
			break
		}
		runes := []rune(w)
		if len(runes) < 3 || runes[0] < 0x2e80 {
			list = append(list, w)
			continue
		}
		for i := 0; i+1 < len(runes) && len(list) < maxWords; i++ {
			list = append(list, string(runes[i:i+2]))
		}
	}
	return list
}

// bands are the near-duplicate bands of a text, 8 bytes each.
func bands(text string) []byte {
	list := words(text)
	plain := strings.Join(list, " ")
	if plain == "" {
		plain = strings.TrimSpace(text)
	}
	out := binary.BigEndian.AppendUint64(nil, xxhash.Sum64String(plain))
	if len(list) == 0 {
		return out
	}
	var least [minHashes]uint64
	for i := range least {
		least[i] = ^uint64(0)
	}
	for _, w := range list {
		h := xxhash.Sum64String(w)
		for i := range least {
			least[i] = min(least[i], mix(h+uint64(i)*0x9e3779b97f4a7c15))
		}
	}
	for i := 0; i < minHashes; i += perBand {
		out = binary.BigEndian.AppendUint64(out, mix(least[i]+3*mix(least[i+1])))
	}
	return out
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// eachBand calls fn for the keys of a fact's band rows.
func eachBand(i *info, fn func(k []byte) error) error {
	for n := 0; 8*n < len(i.more); n++ {
		if err := fn(key(rowBand, i.ns[:], []byte{byte(n)}, i.more[8*n:8*n+8], i.ref[:])); err != nil {
			return err
		}
	}
	return nil
}

// Duplicate is a live fact that says nearly the same as another text.
type Duplicate struct {
	Record
	Likeness float64 // share of common words; 1 with Exact
	Exact    bool    // the same bytes
}

// Near names the live facts of a namespace that are like a text, the likest
// first, at most limit of them; except is left out. It looks at a bounded
// number of candidates, whatever the size of the namespace, so it may miss
// some.
func Near(snap oplog.Snapshot, namespace, text string, except oplog.Hash, limit int) ([]Duplicate, error) {
	r, ns := snap.View(ViewName), nsID(namespace)
	seen := map[oplog.Ref]bool{}
	probe := info{ns: ns, more: bands(text)}
	err := eachBand(&probe, func(k []byte) error {
		n := 0
		return r.Scan(k[:len(k)-oplog.RefSize], nil, true, func(k, _ []byte) (bool, error) {
			ref, err := tail(k)
			if err != nil {
				return false, err
			}
			seen[ref] = true
			n++
			return n < bandReach, nil
		})
	})
	if err != nil {
		return nil, err
	}
	own := wordSet(text)
	var found []Duplicate
	for ref := range seen {
		e, err := snap.Entry(ref)
		if err != nil {
			return nil, fmt.Errorf("memory: fact of a row: %w", err)
		}
		b, err := decodeFact(e.Body)
		if err != nil || e.Hash == except || b.Namespace != namespace {
			continue
		}
		d := Duplicate{Record: Record{Ref: ref}, Exact: b.Text == text, Likeness: 1}
		if !d.Exact {
			d.Likeness = likeness(own, wordSet(b.Text))
		}
		if d.Likeness >= Likeness {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b Duplicate) int {
		switch {
		case a.Exact != b.Exact && a.Exact, a.Exact == b.Exact && a.Likeness > b.Likeness:
			return -1
		case a.Exact == b.Exact && a.Likeness == b.Likeness:
			return b.Ref.Compare(a.Ref)
		}
		return 1
	})
	found = found[:min(len(found), max(limit, 0))]
	for n := range found {
		if found[n].Record, err = ByRef(snap, found[n].Ref); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range words(text) {
		set[w] = true
	}
	return set
}

func likeness(a, b map[string]bool) float64 {
	common := 0
	for w := range a {
		if b[w] {
			common++
		}
	}
	if all := len(a) + len(b) - common; all > 0 {
		return float64(common) / float64(all)
	}
	return 0
}
