// Package repotest holds the rules of this repository as tests: which package
// may import which, where a dependency may be used, that every package says
// what it is for, and that the code is formatted. The rules are data in
// arrows_test.go and change there, in review.
package repotest
