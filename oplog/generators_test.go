package oplog

import (
	"slices"
	"strings"

	"pgregory.net/rapid"

	"tallystick/hlc"
)

// entries draws sealed entries with fields at and around all limits.
func entries() *rapid.Generator[Entry] {
	return rapid.Custom(func(t *rapid.T) Entry {
		e := Entry{Header: Header{
			Origin: OriginID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "origin")),
			Seq:    max(numbers().Draw(t, "seq"), 1),
			Time:   hlc.Timestamp(rapid.Uint64Range(1, uint64(hlc.Max)).Draw(t, "time")),
			Kind:   "k" + strings.Repeat("i", rapid.IntRange(0, MaxKind-1).Draw(t, "kind")),
			Author: strings.Repeat("a", rapid.OneOf(rapid.IntRange(0, 40), rapid.SampledFrom([]int{255, 256})).Draw(t, "author")),
		}}
		if e.Seq > 1 {
			e.Prev = hashes().Draw(t, "prev")
		}
		e.Salt = rapid.SliceOfN(rapid.Byte(), SaltSize, SaltSize).Draw(t, "salt")
		body := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "body")
		opID := strings.Repeat("o", rapid.SampledFrom([]int{0, 1, 31, 32, 255, 256}).Draw(t, "op id"))
		e.Payload = EncodePayload(numbers().Draw(t, "version"), opID, body)
		e.seal()
		return e
	})
}

func numbers() *rapid.Generator[uint64] {
	return rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, 1<<64 - 1}))
}

// hashes draws hashes that are not zero.
func hashes() *rapid.Generator[Hash] {
	return rapid.Custom(func(t *rapid.T) Hash {
		h := Hash(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"))
		h[0] |= 1
		return h
	})
}

// frontiers draws frontiers in canonical form: tips sorted, none twice.
func frontiers() *rapid.Generator[Frontier] {
	return rapid.Custom(func(t *rapid.T) Frontier {
		f := Frontier{}
		for range rapid.IntRange(0, 20).Draw(t, "origins") {
			o := OriginID{byte(rapid.IntRange(0, 9).Draw(t, "first")), 15: rapid.Byte().Draw(t, "last")}
			for range rapid.SampledFrom([]int{1, 1, 1, 2, 17, MaxTips}).Draw(t, "tips") {
				f[o] = append(f[o], Tip{Seq: max(numbers().Draw(t, "seq"), 1), Hash: hashes().Draw(t, "hash")})
			}
			slices.SortFunc(f[o], compareTips)
			f[o] = slices.Compact(f[o])
			f[o] = f[o][:min(len(f[o]), MaxTips)]
		}
		return f
	})
}
