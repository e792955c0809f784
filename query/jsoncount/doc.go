// Package jsoncount says how long a list in JSON is before anything is
// allocated for it. Two bytes of input are a slice or a struct in memory, so
// that a limit on bytes alone bounds little.
package jsoncount
