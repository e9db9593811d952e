// The newest of something that is replaced as a whole: what is drawn from it follows.

export class Latest<T> {
  value = $state.raw<T | undefined>();
}
