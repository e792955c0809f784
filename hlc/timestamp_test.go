package hlc_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tallystick/hlc"
)

// timestamps draws from the whole range that has a text form, its edges often.
func timestamps() *rapid.Generator[hlc.Timestamp] {
	edges := []hlc.Timestamp{0, 1, 0xffff, 0x10000, hlc.New(999_999_999_999, 0xffff), hlc.New(1e12, 0), hlc.Max - 1, hlc.Max}
	return rapid.OneOf(
		rapid.SampledFrom(edges),
		rapid.Map(rapid.Uint64Range(0, uint64(hlc.Max)), func(v uint64) hlc.Timestamp { return hlc.Timestamp(v) }),
		rapid.Custom(func(t *rapid.T) hlc.Timestamp {
			return hlc.New(rapid.Int64Range(0, hlc.MaxMillis).Draw(t, "ms"), rapid.Uint16().Draw(t, "counter"))
		}),
	)
}

func stamps() *rapid.Generator[hlc.Stamp] {
	return rapid.Custom(func(t *rapid.T) hlc.Stamp {
		s := hlc.Stamp{Timestamp: timestamps().Draw(t, "timestamp")}
		copy(s.Origin[:], rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "origin"))
		return s
	})
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		name    string
		ms      int64
		counter uint16
		wantMS  int64
	}{
		{"OK", 1772366400000, 7, 1772366400000},
		{"OK zero", 0, 0, 0},
		{"OK top", hlc.MaxMillis, 0xffff, hlc.MaxMillis},
		{"Clamped below", -1, 3, 0},
		{"Clamped far below", math.MinInt64, 0, 0},
		{"Clamped above", hlc.MaxMillis + 1, 3, hlc.MaxMillis},
		{"Clamped far above", math.MaxInt64, 0, hlc.MaxMillis},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := hlc.New(c.ms, c.counter)
			if got.Millis() != c.wantMS || got.Counter() != c.counter {
				t.Fatalf("New(%d, %d) = (%d, %d)", c.ms, c.counter, got.Millis(), got.Counter())
			}
			if got > hlc.Max {
				t.Fatalf("%d is above Max", got)
			}
		})
	}
}

func TestTimestamp(t *testing.T) {
	a, b := hlc.New(1000, 0xffff), hlc.New(1001, 0)
	if a.Next() != b {
		t.Errorf("C1: a full counter must borrow the next millisecond: %d", a.Next())
	}
	if a.Compare(b) != -1 || b.Compare(a) != 1 || a.Compare(a) != 0 {
		t.Error("Compare does not follow the numbers")
	}
	if !hlc.Timestamp(0).IsZero() || a.IsZero() {
		t.Error("IsZero")
	}
	if got := b.Sub(a); got != time.Millisecond {
		t.Errorf("Sub = %s", got)
	}
	if got := a.Sub(b); got != -time.Millisecond {
		t.Errorf("Sub = %s", got)
	}
	if got := hlc.Max.Sub(0); got < 292*365*24*time.Hour {
		t.Errorf("Sub wraps round: %s", got)
	}
	if got := hlc.Timestamp(0).Sub(hlc.Max); got > -292*365*24*time.Hour {
		t.Errorf("Sub wraps round: %s", got)
	}
	want := time.Date(2026, 3, 1, 12, 0, 0, 5e6, time.UTC)
	if got := hlc.New(want.UnixMilli(), 9).Time(); !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("Time = %s", got)
	}
}

func TestParseStamp(t *testing.T) {
	const good = "1772366400000-00ff-3f9a1100c402"
	for _, c := range []struct{ name, text string }{
		{"OK", good},
		{"OK zero", "0000000000000-0000-000000000000"},
		{"OK highest", "9999999999999-ffff-ffffffffffff"},
		{"ErrEmpty", ""},
		{"ErrShort", good[:30]},
		{"ErrLong", good + "0"},
		{"ErrVeryLong", strings.Repeat("0", 1<<20)},
		{"ErrUpperCounter", "1772366400000-00FF-3f9a1100c402"},
		{"ErrUpperOrigin", "1772366400000-00ff-3F9a1100c402"},
		{"ErrSign", "+772366400000-00ff-3f9a1100c402"},
		{"ErrMinus", "-772366400000-00ff-3f9a1100c402"},
		{"ErrUnderscore", "1_72366400000-00ff-3f9a1100c402"},
		{"ErrSpace", " 772366400000-00ff-3f9a1100c402"},
		{"ErrHexInMillis", "a772366400000-00ff-3f9a1100c402"},
		{"ErrFirstDash", "1772366400000_00ff-3f9a1100c402"},
		{"ErrSecondDash", "1772366400000-00ff_3f9a1100c402"},
		{"ErrCounterDigit", "1772366400000-00fg-3f9a1100c402"},
		{"ErrOriginDigit", "1772366400000-00ff-3f9a1100c40g"},
		{"ErrArabicDigits", "177236640\u0660\u0660-00ff-3f9a1100c402"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := hlc.ParseStamp(c.text)
			if strings.HasPrefix(c.name, "OK") {
				if err != nil || s.String() != c.text {
					t.Fatalf("ParseStamp(%q) = %v, %v", c.text, s, err)
				}
				return
			}
			if !errors.Is(err, hlc.ErrFormat) {
				t.Fatalf("ParseStamp(%q) = %v, %v, want ErrFormat", c.text, s, err)
			}
			if s != (hlc.Stamp{}) {
				t.Errorf("a stamp beside an error: %v", s)
			}
			if len(err.Error()) > 300 {
				t.Errorf("the error repeats %d bytes of input", len(err.Error()))
			}
		})
	}
}

// Every single byte is checked: no one-byte change of a text parses to the
// same stamp.
func TestParseStampIsStrictInEveryByte(t *testing.T) {
	const good = "1772366400000-00ff-3f9a1100c402"
	want, err := hlc.ParseStamp(good)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for c := range 256 {
			text := good[:i] + string([]byte{byte(c)}) + good[i+1:]
			got, err := hlc.ParseStamp(text)
			if err == nil && got.String() != text {
				t.Fatalf("%q parsed, but formats as %q", text, got)
			}
			if err == nil && text != good && got == want {
				t.Fatalf("%q and %q are one stamp", text, good)
			}
		}
	}
}

// C2: the text form sorts as Compare.
func TestC2_TextSortsAsCompare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := stamps().Draw(t, "a"), stamps().Draw(t, "b")
		if rapid.Bool().Draw(t, "near") {
			b.Timestamp = min(a.Timestamp+hlc.Timestamp(rapid.IntRange(0, 2).Draw(t, "step")), hlc.Max)
		}
		if got, want := strings.Compare(a.String(), b.String()), a.Compare(b); got != want {
			t.Fatalf("texts %s, %s compare %d, stamps %d", a, b, got, want)
		}
		if a.Compare(b) != -b.Compare(a) || (a.Compare(b) == 0) != (a == b) {
			t.Fatalf("Compare is no order: %s, %s", a, b)
		}
	})
}

func TestParseStampInvertsString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := stamps().Draw(t, "s")
		got, err := hlc.ParseStamp(s.String())
		if err != nil || got != s {
			t.Fatalf("%+v as text is %s, parsed %+v, %v", s, s, got, err)
		}
	})
}

func TestStampJSON(t *testing.T) {
	type row struct {
		HLC hlc.Stamp `json:"hlc"`
	}
	rapid.Check(t, func(t *rapid.T) {
		in := row{HLC: stamps().Draw(t, "s")}
		if in.HLC.IsZero() {
			in.HLC = hlc.Stamp{}
		}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out row
		if err := json.Unmarshal(text, &out); err != nil || out != in {
			t.Fatalf("%s: %+v, %v", text, out, err)
		}
	})
	var out row
	if err := json.Unmarshal([]byte(`{"hlc":"yesterday"}`), &out); !errors.Is(err, hlc.ErrFormat) {
		t.Errorf("a bad text gives %v", err)
	}
	if text, _ := json.Marshal(row{}); string(text) != `{"hlc":""}` {
		t.Errorf("the zero stamp is %s", text)
	}
}

func FuzzParseStamp(f *testing.F) {
	for _, text := range []string{
		"", "1772366400000-00ff-3f9a1100c402", "0000000000000-0000-000000000000",
		"9999999999999-ffff-ffffffffffff", "1772366400000-00FF-3f9a1100c402",
		"177236640000-00ff-3f9a1100c402", "+772366400000-00ff-3f9a1100c402",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := hlc.ParseStamp(text)
		if err != nil {
			if !errors.Is(err, hlc.ErrFormat) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		}
		if s.String() != text || s.Timestamp > hlc.Max {
			t.Fatalf("%q parsed to %+v, which formats as %q", text, s, s)
		}
	})
}

func BenchmarkStampString(b *testing.B) {
	s := hlc.Stamp{Timestamp: hlc.New(1772366400000, 255), Origin: [6]byte{1, 2, 3, 4, 5, 6}}
	b.ReportAllocs()
	for b.Loop() {
		_ = s.String()
	}
}

func BenchmarkParseStamp(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, _ = hlc.ParseStamp("1772366400000-00ff-3f9a1100c402")
	}
}
