/**
 * Runs in virtual time.
 *
 * @packageDocumentation
 */

export {};
