package oplog

import (
	"bytes"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func readFormat(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "format-disk.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// L8: the worked examples of docs/format-disk.md are the golden bytes, and
// their offsets are right.
func TestL8_FormatPageShowsGoldenBytes(t *testing.T) {
	blocks := regexp.MustCompile("(?s)<!-- golden ([a-z0-9-]+) -->\n```\n(.*?)```\n").FindAllStringSubmatch(readFormat(t), -1)
	var names []string
	for _, block := range blocks {
		names = append(names, block[1])
		var got []byte
		for line := range strings.Lines(block[2]) {
			offset, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), "  ")
			if n, err := strconv.Atoi(offset); err != nil || n != len(got) {
				t.Errorf("%s: line %q is at offset %d", block[1], line, len(got))
			}
			// Sixteen bytes fill the column; what is behind it is for people.
			digits := strings.ReplaceAll(rest[:min(len(rest), 16*3-1)], " ", "")
			b, err := hex.DecodeString(digits)
			if err != nil {
				t.Errorf("%s: line %q: %v", block[1], line, err)
			}
			got = append(got, b...)
		}
		if want := golden(t, block[1], nil); !bytes.Equal(got, want) {
			t.Errorf("the page shows %s as\n%x\nthe golden file has\n%x", block[1], got, want)
		}
	}
	if want := []string{"entry-v0-event", "head-v0", "frontier-v0"}; !slices.Equal(names, want) {
		t.Errorf("worked examples of %v, want %v", names, want)
	}
}

// L6, A4: the limits on the page are those of the code.
func TestA4_FormatPageStatesLimits(t *testing.T) {
	want := map[string]int{
		"MaxPayload": MaxPayload, "MaxKind": MaxKind, "MaxAuthor": MaxAuthor, "MaxOpID": MaxOpID, "SaltSize": SaltSize,
		"maxHeader": maxHeader, "MaxEntry": MaxEntry, "MaxFrontierOrigins": MaxFrontierOrigins, "MaxTips": MaxTips,
		"ChunkSize": ChunkSize, "MaxBlob": MaxBlob,
	}
	got := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\d+) \\|").FindAllStringSubmatch(readFormat(t), -1) {
		got[row[1]], _ = strconv.Atoi(row[2])
	}
	if !maps.Equal(got, want) {
		t.Errorf("the page says %v, the code %v", got, want)
	}
}

// The page names each table of the store, and none that is not there; and the
// offsets of what a head signs.
func TestL8_FormatPageNamesTables(t *testing.T) {
	tables := []byte{tabMeta, tabLane, tabEntry, tabArr, tabHash, tabOp, tabHead, tabCheck, tabAside, tabView, tabInfo, tabErase, tabAmend, tabOwed, tabBlob, tabChunk, tabName, tabUpload}
	page := readFormat(t)
	var got []byte
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z])` \\|").FindAllStringSubmatch(page, -1) {
		got = append(got, row[1][0])
	}
	if !bytes.Equal(got, tables) {
		t.Errorf("the page has tables %q, the code %q", got, tables)
	}
	h := goldenHead(1)
	end := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \|`).FindAllStringSubmatch(page, -1) {
		offset, _ := strconv.Atoi(row[1])
		length, _ := strconv.Atoi(row[2])
		if offset != end {
			t.Errorf("a signed field at %d, the one before ends at %d", offset, end)
		}
		end = offset + length
	}
	if end != len(h.signed()) {
		t.Errorf("the page signs %d bytes, the code %d", end, len(h.signed()))
	}
}
