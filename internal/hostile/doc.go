// Package hostile gives tests bad input for a decoder, made from one good
// input: cut at every byte, one bit turned, lengths of 2^31, deep nesting, keys
// given twice, wrong types, a hundred thousand tiny values. Check feeds it all
// and wants an error where one is due, no panic, and less than 1 MiB allocated
// beyond the input. Nothing but tests imports it.
package hostile
