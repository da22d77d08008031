// A static program of another language: the SHA-512 of a file, in reads of 64 KiB.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
package main

import (
	"crypto/sha512"
	"fmt"
	"io"
	"os"
)

func main() {
	file, err := os.Open(os.Args[1])
	if err == nil {
		sum := sha512.New()
		if _, err = io.CopyBuffer(sum, struct{ io.Reader }{file}, make([]byte, 64<<10)); err == nil {
			fmt.Printf("%x\n", sum.Sum(nil))
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
