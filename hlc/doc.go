// Package hlc gives hybrid logical timestamps and the clock that issues and
// merges them within a bound.
package hlc
